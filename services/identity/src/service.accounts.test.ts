import { newId } from "@sandgate/kit/base/ids";
import { asFacade } from "@sandgate/kit/rpc/context";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { describe, expect } from "vitest";
import {
  advance,
  as,
  bus,
  close,
  createUser,
  from,
  identity,
  nobody,
  open,
  password,
  readMails,
  service,
  signedIn,
  signIn,
  username,
  useService,
  verifyAccessToken,
} from "./service.fixture.ts";

useService();

describe("accounts", () => {
  test("a user registers, verifies the address and signs in", async () => {
    await open();
    await identity.register({ username, password }, nobody());
    await expect(signIn()).rejects.toMatchObject({ reason: "EMAIL_NOT_VERIFIED" });
    await expect(identity.signIn({ username, password: "wrong password" }, nobody())).rejects.toMatchObject({
      reason: "INVALID_CREDENTIALS",
    });
    const [mail] = await readMails(1);
    expect(mail?.text).toContain(`http://127.0.0.1:8080/auth/verify-email?token=${mail?.token}\n`);
    const link = { token: mail?.token ?? "", password };
    await identity.verifyEmail(link, nobody());
    await expect(identity.verifyEmail(link, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
    const { tokens } = await identity.signIn({ username: "ANN@example.com", password }, nobody());
    expect(tokens).toMatchObject({ expiresInSeconds: 300, refreshExpiresInSeconds: 1800 });
  });

  test("registering a taken name is answered like a free one and changes nothing", async () => {
    await open();
    const id = await createUser();
    const again = { username: "ann@EXAMPLE.com", password: "another password" };
    expect(await identity.register(again, nobody())).toMatchObject({});
    const [, notice] = await readMails(2);
    expect(notice?.token).toBeUndefined();
    expect(notice?.text).toMatch(/^To: Ann@example.com$/m);
    await expect(identity.signIn(again, nobody())).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
    const { users } = await identity.batchGetUsers({ userIds: [id], usernames: ["ann@example.com"] }, nobody());
    expect(users).toMatchObject([{ id, username, verified: true, operator: false }]);
  });

  test("another verification mail goes only to unverified users", async () => {
    await open();
    await identity.resendVerification({ username: "nobody@example.com" }, nobody());
    await createUser();
    await identity.resendVerification({ username }, nobody());
    await identity.register({ username: "bob@example.com", password }, nobody());
    await readMails(2);
    await identity.resendVerification({ username: "BOB@example.com" }, nobody());
    await readMails(3);
    await identity.register({ username: "Bob@Example.com", password }, nobody());
    const mails = (await readMails(4)).map(({ text }) => /^To: (.*)$/m.exec(text)?.[1]);
    expect(mails.slice(1)).toEqual(["bob@example.com", "bob@example.com", "bob@example.com"]);
  });

  test.for([
    ["the stranger's registration", 0],
    ["the owner's registration", 1],
    ["the mail that was sent again", 2],
  ] as const)(
    "who registers an address first gains nothing when its owner follows the link of %s",
    async ([, followed]) => {
      await open();
      const stranger = { username, password: "eve's own secret" };
      await identity.register(stranger, nobody());
      await readMails(1);
      await identity.register({ username, password }, nobody());
      await readMails(2);
      await identity.resendVerification({ username }, nobody());
      const links = (await readMails(3)).map((mail) => mail.token ?? "");
      const token = links[followed] ?? "";
      await expect(identity.verifyEmail({ token }, nobody())).rejects.toMatchObject({
        reason: "VALIDATION_ERROR",
        violations: [{ field: "password" }],
      });
      await expect(identity.signIn(stranger, nobody())).rejects.toMatchObject({ reason: "EMAIL_NOT_VERIFIED" });
      await identity.verifyEmail({ token, password }, nobody());
      await signedIn();
      await expect(identity.signIn(stranger, nobody())).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
      for (const each of links) {
        await expect(
          identity.verifyEmail({ token: each, password: stranger.password }, nobody()),
        ).rejects.toMatchObject({
          reason: "INVALID_TOKEN",
        });
      }
    },
  );

  test("registrations count before their passwords are judged, which takes long", async () => {
    await open({ SANDGATE_NETWORK_MAILS_PER_HOUR: "1" });
    const register = () => identity.register({ username, password: "password123" }, from("198.51.100.1"));
    await expect(register()).rejects.toMatchObject({ reason: "VALIDATION_ERROR" });
    await expect(register()).rejects.toMatchObject({ reason: "RATE_LIMITED" });
  });

  test("a stranger's registrations of an address don't keep its owner's mails from coming", async () => {
    await open();
    const [home, stranger] = ["192.0.2.1", "198.51.100.1"];
    for (let i = 0; i < 9; i++) await identity.register({ username, password: "eve's own secret" }, from(stranger));
    await readMails(3);
    await identity.register({ username, password }, from(home));
    const token = (await readMails(4)).at(-1)?.token ?? "";
    await identity.verifyEmail({ token, password }, nobody());
    await identity.signIn({ username, password, client: { address: home } }, from(home));
    for (let i = 0; i < 9; i++) await identity.requestPasswordReset({ username }, from(`198.51.${100 + i}.1`));
    // One more is the fifth that all share, and five come from networks that hadn't asked for any.
    await readMails(10);
    await identity.requestPasswordReset({ username }, from(home));
    expect((await readMails(11)).at(-1)?.text).toContain("/auth/password/reset?token=");
  });

  test.for(["resendVerification", "requestPasswordReset"] as const)(
    "%s mails to the account's own address, however the request writes it",
    async (method) => {
      await open();
      if (method === "requestPasswordReset") await createUser();
      else await identity.register({ username, password }, nobody());
      await readMails(1);
      // Lower case makes a k of the Kelvin sign: the address in the request could be another mailbox.
      const other = "mike@example.com";
      await identity.register({ username: other, password }, nobody());
      const before = await readMails(2);
      if (method === "requestPasswordReset") {
        const token = before.find(({ text }) => text.includes(other))?.token ?? "";
        await identity.verifyEmail({ token, password }, nobody());
      }
      await identity[method]({ username: "mi\u212ae@example.com" }, nobody());
      const [mail] = (await readMails(3)).filter(({ token }) => !before.some((known) => known.token === token));
      expect(mail?.text).toContain(`To: ${other}\n`);
    },
  );

  test("a new user is announced on the bus", async () => {
    await open();
    const created: string[] = [];
    const consumption = await bus.consume({
      consumer: "test",
      subjects: ["sandgate.identity.user.created.v1"],
      handle: async (event) => void created.push(event.entityId),
    });
    const id = await createUser();
    await until(() => expect(created).toContain(id));
    await consumption.stop();
    const { users } = await identity.batchGetUsers({ userIds: created }, nobody());
    expect(users.map((user) => user.username).toSorted()).toEqual([username, "admin@localhost"]);
  });

  test("closed registration is forbidden", async () => {
    await open({ SANDGATE_REGISTRATION: "closed" });
    await expect(identity.register({ username, password }, nobody())).rejects.toMatchObject({ reason: "FORBIDDEN" });
  });

  test("a short password and a name that is not an address are refused", async () => {
    await open();
    await expect(identity.register({ username: "ann", password: "short" }, nobody())).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
    });
  });
});

describe("passwords", () => {
  const next = "another long passphrase";
  const tokenOf = async (count: number) =>
    (await readMails(count)).find(({ text }) => text.includes("/reset?"))?.token ?? "";
  const signInWith = (given: string) => identity.signIn({ username, password: given }, nobody());

  test("one that is too easy to guess is refused, wherever it is set", async () => {
    await open();
    const id = await createUser();
    await identity.requestPasswordReset({ username }, nobody());
    const token = await tokenOf(2);
    for (const weak of [
      "password123",
      "qwertyuiop",
      "Passw0rd!!",
      "aaaaaaaaaaaaaaaa",
      "Ann@Example.com",
      "sandgate123",
    ]) {
      for (const set of [
        () => identity.register({ username: "ann@example.com", password: weak }, nobody()),
        () => identity.changePassword({ currentPassword: password, password: weak }, as(id)),
        () => identity.resetPassword({ token, password: weak }, nobody()),
      ]) {
        await expect(set(), weak).rejects.toMatchObject({
          reason: "VALIDATION_ERROR",
          violations: [{ field: "password" }],
        });
      }
    }
    await signInWith(password);
  });

  test("neither the user's name nor its part before the @ can be one, whatever the case", async () => {
    await open();
    const [local, domain] = ["maria.del-carmen.zapata", "example.com"];
    for (const own of [local, local.toUpperCase(), `${local}@${domain}`, ` ${local}@${domain.toUpperCase()}`]) {
      const registered = identity.register({ username: `Maria.del-Carmen.Zapata@${domain}`, password: own }, nobody());
      await expect(registered, own).rejects.toMatchObject({
        reason: "VALIDATION_ERROR",
        violations: [{ field: "password", issue: "must not be your user name or its part before the @" }],
      });
    }
    await identity.register({ username: `maria@${domain}`, password: local }, nobody());
  });

  test("a change keeps the caller's session and ends all others; a mail notifies the user", async () => {
    await open();
    const id = await createUser();
    const [mine, other] = [await signedIn(), await signedIn()];
    const { sid } = await verifyAccessToken(mine.accessToken);
    const heard: string[] = [];
    bus.watch("identity.sessions.ended", (body) => heard.push(body));
    const caller = { id, credential: "session" as const, credentialId: String(sid), operator: false };
    const call = () => asFacade({ requestId: newId(), user: caller });
    await expect(
      identity.changePassword({ currentPassword: "wrong password", password: next }, call()),
    ).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
    await identity.changePassword({ currentPassword: password, password: next }, call());
    expect(heard).toEqual([(await verifyAccessToken(other.accessToken)).sid]);
    await identity.refreshSession({ refreshToken: mine.refreshToken }, nobody());
    await expect(identity.refreshSession({ refreshToken: other.refreshToken }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    await expect(signInWith(password)).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
    await signInWith(next);
    expect((await readMails(2)).some(({ text }) => text.includes("was changed"))).toBe(true);
    const token = asFacade({ requestId: newId(), user: { ...caller, credential: "api_token" } });
    await expect(identity.changePassword({ currentPassword: next, password }, token)).rejects.toMatchObject({
      reason: "FORBIDDEN",
    });
  });

  test("a reset revokes all API tokens; a change does where that is asked for", async () => {
    await open();
    const id = await createUser();
    const make = async () => (await identity.createApiToken({ description: "ci" }, as(id))).token;
    const invalidToken = { reason: "INVALID_TOKEN" };
    const heard: string[] = [];
    bus.watch("identity.api_tokens.revoked", (body) => heard.push(body));
    const first = await make();
    await identity.changePassword({ currentPassword: password, password: next }, as(id));
    await identity.verifyApiToken({ token: first }, nobody());
    expect(heard).toEqual([]);
    const change = { currentPassword: next, password, revokeApiTokens: true };
    await identity.changePassword(change, as(id));
    await expect(identity.verifyApiToken({ token: first }, nobody())).rejects.toMatchObject(invalidToken);
    const second = await make();
    await identity.requestPasswordReset({ username }, nobody());
    await identity.resetPassword({ token: await tokenOf(6), password: next }, nobody());
    await expect(identity.verifyApiToken({ token: second }, nobody())).rejects.toMatchObject(invalidToken);
    expect(heard).toEqual([id, id]);
    const notices = (await readMails(7)).filter(({ text }) => text.includes("was changed")).map(({ text }) => text);
    expect(notices.map((text) => text.includes("tokens were revoked"))).toEqual([false, true, true]);
  });

  test("the link in a mail sets a new one, once, within an hour", async () => {
    await open();
    await createUser();
    const tokens = await signedIn();
    await identity.requestPasswordReset({ username: "nobody@example.com" }, nobody());
    await identity.requestPasswordReset({ username: username.toUpperCase() }, nobody());
    const token = await tokenOf(2);
    advance(3_600_000);
    await expect(identity.resetPassword({ token, password: next }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    advance(-1);
    expect((await identity.resetPassword({ token, password: next }, nobody())).identities).toEqual([]);
    await expect(identity.resetPassword({ token, password }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    await expect(identity.refreshSession({ refreshToken: tokens.refreshToken }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    await signInWith(next);
  });
});

describe("the operator", () => {
  test("is created by the first start only, with a password shown once", async () => {
    await open();
    const first = service.firstStart;
    if (!first) throw new Error("The first start made no operator.");
    expect(first.username).toBe("admin@localhost");
    const { tokens } = await identity.signIn(first, nobody());
    expect(await verifyAccessToken(tokens?.accessToken ?? "")).toMatchObject({ op: true });
    await close();
    await open();
    expect(service.firstStart).toBeUndefined();
    await identity.signIn(first, nobody());
  });

  test("has the name and password of the settings", async () => {
    await open({ SANDGATE_ADMIN_USERNAME: "root@example.com", SANDGATE_ADMIN_PASSWORD: password });
    expect(service.firstStart).toBeUndefined();
    await identity.signIn({ username: "root@example.com", password }, nobody());
  });

  test("is not given a password that would have to be shown, where a service is a process of its own", async () => {
    const operatorPassword = "settings";
    await expect(open({}, { operatorPassword })).rejects.toThrow("SANDGATE_ADMIN_PASSWORD is missing");
    await open({ SANDGATE_ADMIN_PASSWORD: password }, { operatorPassword });
    await close();
    await open({}, { operatorPassword });
    await identity.signIn({ username: "admin@localhost", password }, nobody());
  });
});

describe("administration", () => {
  async function operator() {
    await open({ SANDGATE_ADMIN_PASSWORD: "an operator's secret" });
    const { users } = await identity.batchGetUsers({ usernames: ["admin@localhost"] }, nobody());
    const id = users[0]?.id ?? "";
    const user = { id, credential: "session" as const, credentialId: newId(), operator: true };
    return { id, call: () => asFacade({ requestId: newId(), user }) };
  }

  test("is an operator's alone", async () => {
    await open();
    const id = await createUser();
    for (const calling of [
      () => identity.listUsers({}, as(id)),
      () => identity.setUserDisabled({ userId: id, disabled: true }, as(id)),
      () => identity.deleteUser({ userId: id }, as(id)),
      () => identity.endUserSessions({ userId: id }, as(id)),
      () => identity.revokeUserApiTokens({ userId: id }, as(id)),
    ]) {
      await expect(calling()).rejects.toMatchObject({ reason: "FORBIDDEN" });
    }
  });

  test("a disabled user is signed out, can't sign in, and learns it only with the right password", async () => {
    const { id: own, call } = await operator();
    const id = await createUser();
    const { sid } = await verifyAccessToken((await signedIn()).accessToken);
    const { token } = await identity.createApiToken({ description: "ci" }, as(id));
    const heard: string[] = [];
    bus.watch("identity.sessions.ended", (body) => heard.push(body));
    const { user } = await identity.setUserDisabled({ userId: id, disabled: true }, call());
    expect(user).toMatchObject({ id, disabled: true });
    expect(heard).toEqual([sid]);
    await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
    await expect(signIn()).rejects.toMatchObject({ reason: "FORBIDDEN" });
    await expect(identity.signIn({ username, password: "wrong password" }, nobody())).rejects.toMatchObject({
      reason: "INVALID_CREDENTIALS",
    });
    await identity.setUserDisabled({ userId: id, disabled: false }, call());
    await signedIn();
    await identity.verifyApiToken({ token }, nobody());
    await expect(identity.setUserDisabled({ userId: own, disabled: true }, call())).rejects.toMatchObject({
      reason: "CONFLICT",
    });
    await expect(identity.setUserDisabled({ userId: newId(), disabled: true }, call())).rejects.toMatchObject({
      reason: "NOT_FOUND",
    });
  });

  test("ends sessions and revokes tokens of a user", async () => {
    const { call } = await operator();
    const id = await createUser();
    const { refreshToken } = await signedIn();
    const made = await Promise.all([1, 2].map(() => identity.createApiToken({ description: "ci" }, as(id))));
    await identity.endUserSessions({ userId: id }, call());
    await expect(identity.refreshSession({ refreshToken }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    await identity.revokeUserApiTokens({ userId: id }, call());
    for (const { token } of made) {
      await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
    }
    await signedIn();
  });

  test("deletes a user, who is announced; the last operator stays enabled", async () => {
    const { id: own, call } = await operator();
    const id = await createUser();
    const deleted: string[] = [];
    const consumption = await bus.consume({
      consumer: "test",
      subjects: ["sandgate.identity.user.deleted.v1"],
      handle: async (event) => void deleted.push(event.entityId),
    });
    await identity.deleteUser({ userId: id }, call());
    await until(() => expect(deleted).toEqual([id]));
    await consumption.stop();
    await expect(identity.deleteUser({ userId: id }, call())).rejects.toMatchObject({ reason: "NOT_FOUND" });
    await expect(identity.deleteUser({ userId: own }, call())).rejects.toMatchObject({ reason: "CONFLICT" });
    // One whom the first operator has disabled meanwhile.
    const user = { id: newId(), credential: "session" as const, credentialId: newId(), operator: true };
    const disabling = identity.setUserDisabled({ userId: own, disabled: true }, asFacade({ requestId: newId(), user }));
    await expect(disabling).rejects.toMatchObject({ reason: "CONFLICT" });
    const { users } = await identity.listUsers({}, call());
    expect(users).toMatchObject([{ id: own, operator: true, disabled: false }]);
  });

  test("a command on the server's machine makes a verified user an operator, after whom the first one can go", async () => {
    const { id: first } = await operator();
    const id = await createUser();
    await identity.register({ username: "bob@example.com", password }, nobody());
    const { refreshToken } = await signedIn();
    const published: unknown[] = [];
    const consumption = await bus.consume({
      consumer: "test",
      subjects: ["sandgate.identity.user.made_operator.v1"],
      handle: async ({ entityId, actor }) => void published.push([entityId, actor]),
    });
    const makeOperator = (...names: string[]) => service.commands?.["make-operator"]?.(new Set(names));
    for (const name of [["bob@example.com"], ["nobody@example.com"], []]) {
      await expect(makeOperator(...name)).rejects.toMatchObject({ reason: "NOT_FOUND" });
    }
    expect(await makeOperator("ANN@example.com")).toEqual({ username, operator: true });
    await until(() => expect(published).toEqual([[id, undefined]]));
    await consumption.stop();
    const { tokens } = await identity.refreshSession({ refreshToken }, nobody());
    expect((await verifyAccessToken(tokens?.accessToken ?? "")).op).toBe(true);
    const call = asFacade({
      requestId: newId(),
      user: { id, credential: "session", credentialId: newId(), operator: true },
    });
    await identity.deleteUser({ userId: first }, call);
  });

  test("a user deletes the own account with the password", async () => {
    await open();
    const id = await createUser();
    await expect(identity.deleteAccount({ password: "wrong password" }, as(id))).rejects.toMatchObject({
      reason: "INVALID_CREDENTIALS",
    });
    await identity.deleteAccount({ password }, as(id));
    await expect(signIn()).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
  });
});
