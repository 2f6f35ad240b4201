import { once } from "node:events";
import { readdir, readFile, rename } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { timestampDate, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type Client, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { dayMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { createCallingTransport, createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { asFacade, asService, type UserCaller } from "@sandgate/kit/rpc/context";
import { createInternalKeys } from "@sandgate/kit/rpc/internal-auth";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { Role } from "@sandgate/proto/common/v1/access";
import { IdentityService, type SessionTokens } from "@sandgate/proto/identity/v1/identity";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { createLocalJWKSet, jwtVerify } from "jose";
import { Secret, TOTP } from "otpauth";
import { afterEach, describe, expect } from "vitest";
import { defineIdentityService } from "./service.ts";

const logger = createLogger({ service: "identity", level: "silent" });
const password = "correct horse battery";
const username = "Ann@Example.com";
let folder: string;
let now: number;
let bus: EventBus;
let network: Awaited<ReturnType<typeof createInMemoryNetwork>>;
let service: Awaited<ReturnType<ReturnType<typeof defineIdentityService>["open"]>>;
let identity: Client<typeof IdentityService>;

async function open(env: NodeJS.ProcessEnv = {}, o: { operatorPassword?: "made" | "settings" } = {}): Promise<void> {
  const metrics = createMetrics();
  bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  network = await createInMemoryNetwork();
  const definition = defineIdentityService(() => new Date(now), o);
  service = await definition.open(
    {
      database: { kind: "sqlite", file: join(folder, "identity.sqlite") },
      bus,
      transport: (name) => network.transport("identity", name),
      keyring: await openKeyring({ file: join(folder, "keys.json"), create: true }),
      logger,
      metrics,
    },
    definition.readSettings({ SANDGATE_DATA: folder, ...env }),
  );
  network.serve("identity", { routes: service.routes, logger, metrics });
  await service.start();
  identity = createClient(IdentityService, network.transport("facade", "identity"));
}

async function close(): Promise<void> {
  await service.drain();
  await service.close();
  await bus.close();
}

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  now = Date.UTC(2026, 0, 1);
});

afterEach(async () => {
  await close();
});

const nobody = (idempotencyKey?: string) => asFacade({ requestId: newId(), idempotencyKey });
const from = (clientAddress: string) => asFacade({ requestId: newId(), clientAddress });

function as(id: string, more: { credential?: UserCaller["credential"]; idempotencyKey?: string } = {}) {
  const user = { id, credential: more.credential ?? "session", credentialId: newId(), operator: false };
  return asFacade({ requestId: newId(), user, idempotencyKey: more.idempotencyKey });
}

/** The tokens of the mails written so far, the oldest first, once there are `count` mails. */
async function readMails(count: number): Promise<{ token: string | undefined; text: string }[]> {
  const mailFolder = join(folder, "mail");
  const files = await until(async () => {
    const names = (await readdir(mailFolder).catch(() => [])).filter((name) => name.endsWith(".eml"));
    expect(names.length).toBeGreaterThanOrEqual(count);
    return names.toSorted();
  });
  return Promise.all(
    files.map(async (file) => {
      const text = await readFile(join(mailFolder, file), "utf8");
      return { text, token: /token=([A-Za-z0-9_-]+)/.exec(text)?.[1] };
    }),
  );
}

async function createUser(): Promise<string> {
  await identity.register({ username, password }, nobody());
  const [mail] = await readMails(1);
  await identity.verifyEmail({ token: mail?.token ?? "" }, nobody());
  const { users } = await identity.batchGetUsers({ usernames: [username] }, nobody());
  return users[0]?.id ?? "";
}

const signIn = async () => (await identity.signIn({ username, password }, nobody())).tokens;

async function signedIn() {
  const tokens = await signIn();
  if (!tokens) throw new Error("The answer has no tokens.");
  return tokens;
}

async function verifyAccessToken(token: string) {
  const { jwks, issuer, audience } = await identity.getSigningKeys({}, nobody());
  const options = { issuer, audience, typ: "at+jwt", currentDate: new Date(now) };
  return (await jwtVerify(token, createLocalJWKSet(JSON.parse(jwks)), options)).payload;
}

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
    await identity.verifyEmail({ token: mail?.token ?? "" }, nobody());
    await expect(identity.verifyEmail({ token: mail?.token ?? "" }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    const { tokens } = await identity.signIn({ username: "ANN@example.com", password }, nobody());
    expect(tokens).toMatchObject({ expiresInSeconds: 300, refreshExpiresInSeconds: 1800 });
  });

  test("registering a taken name is answered like a free one and changes nothing", async () => {
    await open();
    const id = await createUser();
    const again = { username: "ann@EXAMPLE.com", password: "another password" };
    expect(await identity.register(again, nobody())).toMatchObject({});
    expect((await readMails(2))[1]?.token).toBeUndefined();
    await expect(identity.signIn(again, nobody())).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
    const { users } = await identity.batchGetUsers({ userIds: [id], usernames: ["ann@example.com"] }, nobody());
    expect(users).toMatchObject([{ id, username, verified: true, operator: false }]);
  });

  test("another verification mail goes only to unverified users, and its link needs a password", async () => {
    await open();
    await identity.resendVerification({ username: "nobody@example.com" }, nobody());
    await identity.register({ username, password: "eve's own secret" }, nobody());
    await readMails(1);
    await identity.resendVerification({ username: username.toUpperCase() }, nobody());
    const mails = await readMails(2);
    expect(mails).toHaveLength(2);
    const token = mails[1]?.token ?? "";
    await expect(identity.verifyEmail({ token }, nobody())).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
      violations: [{ field: "password" }],
    });
    await identity.verifyEmail({ token, password }, nobody());
    await signedIn();
    await expect(identity.verifyEmail({ token: mails[0]?.token ?? "" }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
  });

  test("who registers an address first gains nothing when its owner follows the own link", async () => {
    await open();
    await identity.register({ username, password: "eve's own secret" }, nobody());
    const [eves] = await readMails(1);
    await identity.register({ username, password }, nobody());
    const own = (await readMails(2)).find(({ token }) => token !== eves?.token);
    await identity.verifyEmail({ token: own?.token ?? "" }, nobody());
    await signedIn();
    await expect(identity.signIn({ username, password: "eve's own secret" }, nobody())).rejects.toMatchObject({
      reason: "INVALID_CREDENTIALS",
    });
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
        await identity.verifyEmail({ token: before.find(({ text }) => text.includes(other))?.token ?? "" }, nobody());
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

  test("the link in a mail sets a new one, once, within an hour", async () => {
    await open();
    await createUser();
    const tokens = await signedIn();
    await identity.requestPasswordReset({ username: "nobody@example.com" }, nobody());
    await identity.requestPasswordReset({ username: username.toUpperCase() }, nobody());
    const token = await tokenOf(2);
    now += 3_600_000;
    await expect(identity.resetPassword({ token, password: next }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    now -= 1;
    await identity.resetPassword({ token, password: next }, nobody());
    await expect(identity.resetPassword({ token, password }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    await expect(identity.refreshSession({ refreshToken: tokens.refreshToken }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
    await signInWith(next);
  });
});

describe("the keys of tokens, at an operator's command,", () => {
  const command = (...options: string[]) => service.commands?.["rotate-keys"]?.(new Set(options));
  const refused = { reason: "INVALID_TOKEN" };

  test("change while sessions go on, also for a refresh that is tried again", async () => {
    await open();
    await createUser();
    const tokens = await signedIn();
    const { refreshToken } = tokens;
    const first = (await identity.refreshSession({ refreshToken }, nobody())).tokens;
    expect(await command()).toEqual({ signs_from: new Date(now + 600_000).toISOString(), sessions: "go on" });
    const again = (await identity.refreshSession({ refreshToken }, nobody())).tokens;
    expect(again?.refreshToken).toBe(first?.refreshToken);
    const next = (await identity.refreshSession({ refreshToken: first?.refreshToken ?? "" }, nobody())).tokens;
    now += 1_000;
    const repeated = (await identity.refreshSession({ refreshToken: first?.refreshToken ?? "" }, nobody())).tokens;
    expect(repeated?.refreshToken).toBe(next?.refreshToken);
    await verifyAccessToken(tokens.accessToken);
    // Used again after its successor was, it ends the session, whichever key derived that.
    await expect(identity.refreshSession({ refreshToken }, nobody())).rejects.toMatchObject(refused);
    const last = { refreshToken: next?.refreshToken ?? "" };
    await expect(identity.refreshSession(last, nobody())).rejects.toMatchObject(refused);
  });

  test("are dropped at once in an emergency, and all sessions end", async () => {
    await open();
    await createUser();
    const [idle, active] = [await signedIn(), await signedIn()];
    const { tokens: refreshed } = await identity.refreshSession({ refreshToken: active.refreshToken }, nobody());
    await command("emergency");
    for (const { accessToken, refreshToken } of [idle, refreshed ?? active]) {
      await expect(verifyAccessToken(accessToken)).rejects.toThrow("no applicable key");
      await expect(identity.refreshSession({ refreshToken }, nobody())).rejects.toMatchObject(refused);
    }
    const { endedSessionIds } = await identity.getSigningKeys({}, nobody());
    expect(endedSessionIds).toEqual([]);
    const fresh = await signedIn();
    await verifyAccessToken(fresh.accessToken);
    await identity.refreshSession({ refreshToken: fresh.refreshToken }, nobody());
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

  test("deletes a user, who is announced; the last operator stays", async () => {
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
    const { users } = await identity.listUsers({}, call());
    expect(users).toMatchObject([{ id: own, operator: true }]);
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

describe("sessions", () => {
  test("an access token names the user, the session and its expiry", async () => {
    await open();
    const id = await createUser();
    const { accessToken } = await signedIn();
    const seconds = now / 1000;
    expect(await verifyAccessToken(accessToken)).toMatchObject({
      sub: id,
      op: false,
      iat: seconds,
      exp: seconds + 300,
      iss: "http://127.0.0.1:8080",
      aud: "sandgate",
    });
  });

  test("a refresh continues the session, across a restart too", async () => {
    await open();
    await createUser();
    const first = await signedIn();
    const { sid } = await verifyAccessToken(first.accessToken);
    now += 60_000;
    const second = await identity.refreshSession({ refreshToken: first.refreshToken }, nobody());
    expect(second.tokens?.refreshExpiresInSeconds).toBe(1800);
    expect((await verifyAccessToken(second.tokens?.accessToken ?? "")).sid).toBe(sid);
    await close();
    await open();
    now += 5_000;
    const retried = await identity.refreshSession({ refreshToken: first.refreshToken }, nobody());
    expect(retried.tokens?.refreshToken).toBe(second.tokens?.refreshToken);
  });

  test("a stolen refresh token ends the session, and the facades are notified", async () => {
    await open();
    await createUser();
    const first = await signedIn();
    const { sid } = await verifyAccessToken(first.accessToken);
    const heard: string[] = [];
    bus.watch("identity.sessions.ended", (body) => heard.push(body));
    const second = await identity.refreshSession({ refreshToken: first.refreshToken }, nobody());
    now += 10_001;
    for (const token of [first.refreshToken, second.tokens?.refreshToken ?? ""]) {
      await expect(identity.refreshSession({ refreshToken: token }, nobody())).rejects.toMatchObject({
        reason: "INVALID_TOKEN",
      });
    }
    expect(heard).toEqual([sid]);
    expect((await identity.getSigningKeys({}, nobody())).endedSessionIds).toEqual([sid]);
    now += 331_000;
    expect((await identity.getSigningKeys({}, nobody())).endedSessionIds).toEqual([]);
  });

  test("a user sees and ends the own sessions, and the facades are notified", async () => {
    await open();
    const id = await createUser();
    const started = [];
    for (const userAgent of ["curl", "Firefox", "Safari"]) {
      const client = { address: "192.0.2.7", userAgent };
      const { tokens } = await identity.signIn({ username, password, client }, nobody());
      started.push(String((await verifyAccessToken(tokens?.accessToken ?? "")).sid));
      now += 1000;
    }
    const [first = "", second = "", current = ""] = started;
    const mine = () => {
      const user = { id, credential: "session" as const, credentialId: current, operator: false };
      return asFacade({ requestId: newId(), user });
    };
    const { sessions } = await identity.listSessions({}, mine());
    expect(sessions).toMatchObject([
      { id: current, current: true, address: "192.0.2.7", userAgent: "Safari" },
      { id: second, current: false, userAgent: "Firefox" },
      { id: first, current: false, userAgent: "curl" },
    ]);
    const heard: string[] = [];
    bus.watch("identity.sessions.ended", (body) => heard.push(body));
    await expect(identity.endSession({ sessionId: first }, as(newId()))).rejects.toMatchObject({ reason: "NOT_FOUND" });
    await identity.endSession({ sessionId: first }, mine());
    await expect(identity.endSession({ sessionId: first }, mine())).rejects.toMatchObject({ reason: "NOT_FOUND" });
    await identity.endOtherSessions({}, mine());
    expect(heard).toEqual([first, second]);
    expect((await identity.listSessions({}, mine())).sessions.map((session) => session.id)).toEqual([current]);
  });

  test("signing out ends the session; an unknown token gets the same answer", async () => {
    await open();
    await createUser();
    const { accessToken, refreshToken } = await signedIn();
    const { sid } = await verifyAccessToken(accessToken);
    await identity.signOut({ refreshToken }, nobody());
    await identity.signOut({ refreshToken }, nobody());
    await identity.signOut({ refreshToken: "unknown" }, nobody());
    expect((await identity.getSigningKeys({}, nobody())).endedSessionIds).toEqual([sid]);
    await expect(identity.refreshSession({ refreshToken }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
  });
});

describe("second factors", () => {
  const codeOf = (secret: string, at = now) => TOTP.generate({ secret: Secret.fromBase32(secret), timestamp: at });
  const signInWith = (otp?: string, given = password) =>
    identity.signIn({ username, password: given, ...(otp !== undefined && { otp }) }, nobody());
  const wrongCode = { reason: "INVALID_CREDENTIALS", violations: [{ field: "otp" }] };

  /** A user with a second factor, whose code of this time step is used up. */
  async function enroll(id: string, given = password) {
    const { secret } = await identity.createSecondFactor({ password: given }, as(id));
    const { recoveryCodes } = await identity.confirmSecondFactor({ otp: codeOf(secret) }, as(id));
    return { secret, recoveryCodes };
  }

  test("one is set up with the password, and confirmed by a code in time; a mail tells", async () => {
    await open();
    const id = await createUser();
    await expect(identity.createSecondFactor({ password: "wrong password" }, as(id))).rejects.toMatchObject({
      reason: "INVALID_CREDENTIALS",
    });
    await expect(identity.createSecondFactor({}, as(id))).rejects.toMatchObject({ reason: "VALIDATION_ERROR" });
    await expect(identity.createSecondFactor({ password }, as(id, { credential: "api_token" }))).rejects.toMatchObject({
      reason: "FORBIDDEN",
    });
    await expect(identity.confirmSecondFactor({ otp: "123456" }, as(id))).rejects.toMatchObject({ reason: "CONFLICT" });
    const late = await identity.createSecondFactor({ password }, as(id));
    now += 600_000;
    await expect(identity.confirmSecondFactor({ otp: codeOf(late.secret) }, as(id))).rejects.toMatchObject({
      reason: "CONFLICT",
    });
    const { secret, uri } = await identity.createSecondFactor({ password }, as(id));
    expect(uri).toContain(`secret=${secret}`);
    await expect(identity.confirmSecondFactor({ otp: codeOf(late.secret) }, as(id))).rejects.toMatchObject(wrongCode);
    // Nothing is asked for before it is confirmed.
    await signedIn();
    expect(await identity.getSecondFactor({}, as(id))).toMatchObject({ enabled: false, recoveryCodesLeft: 0 });
    const { recoveryCodes } = await identity.confirmSecondFactor({ otp: codeOf(secret) }, as(id));
    expect(recoveryCodes).toHaveLength(10);
    expect(await identity.getSecondFactor({}, as(id))).toMatchObject({ enabled: true, recoveryCodesLeft: 10 });
    await expect(identity.createSecondFactor({ password }, as(id))).rejects.toMatchObject({ reason: "CONFLICT" });
    expect((await readMails(2)).some(({ text }) => text.includes("has a second factor"))).toBe(true);
  });

  test("a sign-in says that a code is needed only after the right password, and takes each code once", async () => {
    await open();
    const { secret } = await enroll(await createUser());
    const wrongPassword = await signInWith(undefined, "wrong password").catch((error: unknown) => error);
    expect(wrongPassword).toMatchObject({ reason: "INVALID_CREDENTIALS", violations: undefined });
    expect(await signInWith("000000", "wrong password").catch((error: unknown) => error)).toEqual(wrongPassword);
    await expect(signInWith()).rejects.toMatchObject({
      ...wrongCode,
      hint: expect.stringContaining("`otp`"),
      violations: [{ field: "otp", issue: "is required" }],
    });
    await expect(signInWith("000000")).rejects.toMatchObject(wrongCode);
    // The one that confirmed it.
    await expect(signInWith(codeOf(secret))).rejects.toMatchObject(wrongCode);
    const next = codeOf(secret, now + 30_000);
    expect((await signInWith(next)).tokens?.accessToken).toBeDefined();
    now += 30_000;
    await expect(signInWith(next)).rejects.toMatchObject(wrongCode);
    now += 30_000;
    await signInWith(codeOf(secret));
  });

  test("wrong codes in a row are refused for a while, a recovery code works once, and other accounts are as before", async () => {
    await open();
    const id = await createUser();
    const { secret, recoveryCodes } = await enroll(id);
    now += 60_000;
    for (let i = 0; i < 5; i++) await expect(signInWith("000000")).rejects.toMatchObject(wrongCode);
    await expect(signInWith(codeOf(secret))).rejects.toMatchObject({ reason: "RATE_LIMITED", retryAfterSeconds: 30 });
    // Who doesn't know the password neither sees nor changes that.
    await expect(signInWith("000000", "wrong password")).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
    now += 30_000;
    const [code = ""] = recoveryCodes;
    await signInWith(code.toUpperCase());
    await expect(signInWith(code)).rejects.toMatchObject(wrongCode);
    expect(await identity.getSecondFactor({}, as(id))).toMatchObject({ recoveryCodesLeft: 9 });
    expect((await readMails(3)).some(({ text }) => text.includes("A recovery code"))).toBe(true);
    await signInWith(codeOf(secret));
  });

  test("a code is needed to replace the recovery codes and to remove it; a mail notifies the user", async () => {
    await open();
    const id = await createUser();
    const { secret, recoveryCodes } = await enroll(id);
    now += 60_000;
    for (const change of [
      (request: { password?: string; otp: string }) => identity.createRecoveryCodes(request, as(id)),
      (request: { password?: string; otp: string }) => identity.deleteSecondFactor(request, as(id)),
    ]) {
      await expect(change({ password: "wrong password", otp: codeOf(secret) })).rejects.toMatchObject({
        reason: "INVALID_CREDENTIALS",
        message: "The password is wrong.",
      });
      await expect(change({ password, otp: "000000" })).rejects.toMatchObject(wrongCode);
    }
    const replaced = await identity.createRecoveryCodes({ password, otp: codeOf(secret) }, as(id));
    await expect(identity.deleteSecondFactor({ password, otp: recoveryCodes[0] ?? "" }, as(id))).rejects.toMatchObject(
      wrongCode,
    );
    await identity.deleteSecondFactor({ password, otp: replaced.recoveryCodes[0] ?? "" }, as(id));
    expect(await identity.getSecondFactor({}, as(id))).toMatchObject({ enabled: false });
    await signedIn();
    await expect(identity.deleteSecondFactor({ password, otp: "000000" }, as(id))).rejects.toMatchObject({
      reason: "CONFLICT",
    });
    expect((await readMails(4)).some(({ text }) => text.includes("was removed"))).toBe(true);
  });

  test("what happens to it is published, with who did it; what fails is not", async () => {
    await open();
    const id = await createUser();
    const published: [subject: string, user: string | undefined][] = [];
    const consumption = await bus.consume({
      consumer: "test",
      subjects: ["sandgate.identity.user.*.v1"],
      async handle({ subject, entityId, actor }) {
        if (entityId === id && /second_factor|recovery/.test(subject)) published.push([subject, actor?.userId]);
      },
    });
    const { recoveryCodes } = await enroll(id);
    const [first = "", second = "", third = ""] = recoveryCodes;
    await expect(signInWith("000000")).rejects.toMatchObject(wrongCode);
    await signInWith(first);
    await identity.createRecoveryCodes({ password, otp: second }, as(id));
    await expect(identity.deleteSecondFactor({ password, otp: third }, as(id))).rejects.toMatchObject(wrongCode);
    const operator = { id: newId(), credential: "session" as const, credentialId: newId(), operator: true };
    const call = asFacade({ requestId: newId(), user: operator });
    await identity.deleteUserSecondFactor({ userId: id }, call);
    await until(() => expect(published).toHaveLength(5));
    const name = (event: string) => `sandgate.identity.user.${event}.v1`;
    expect(published.toSorted()).toEqual(
      [
        [name("second_factor_enabled"), id],
        [name("recovery_code_used"), undefined],
        [name("recovery_code_used"), id],
        [name("recovery_codes_replaced"), id],
        [name("second_factor_removed"), operator.id],
      ].toSorted(),
    );
    await consumption.stop();
  });

  test("a new password keeps it", async () => {
    await open();
    await enroll(await createUser());
    await identity.requestPasswordReset({ username }, nobody());
    const mails = await readMails(3);
    const token = mails.find(({ text }) => text.includes("/reset?"))?.token ?? "";
    const next = "another long passphrase";
    await identity.resetPassword({ token, password: next }, nobody());
    await expect(signInWith(undefined, next)).rejects.toMatchObject(wrongCode);
  });

  test("an operator removes a user's, which ends the user's sessions", async () => {
    await open();
    const id = await createUser();
    const { secret } = await enroll(id);
    now += 60_000;
    const { tokens } = await signInWith(codeOf(secret));
    const operator = { id: newId(), credential: "session" as const, credentialId: newId(), operator: true };
    const asOperator = () => asFacade({ requestId: newId(), user: operator });
    await expect(identity.deleteUserSecondFactor({ userId: id }, as(newId()))).rejects.toMatchObject({
      reason: "FORBIDDEN",
    });
    await expect(identity.deleteUserSecondFactor({ userId: newId() }, asOperator())).rejects.toMatchObject({
      reason: "NOT_FOUND",
    });
    for (let time = 0; time < 2; time++) await identity.deleteUserSecondFactor({ userId: id }, asOperator());
    await expect(identity.refreshSession({ refreshToken: tokens?.refreshToken ?? "" }, nobody())).rejects.toMatchObject(
      { reason: "INVALID_TOKEN" },
    );
    await signedIn();
    expect((await readMails(3)).filter(({ text }) => text.includes("was removed"))).toHaveLength(1);
  });

  test("where it is demanded, an operator's rights come with it alone, and last as long as it does", async () => {
    const env = { SANDGATE_ADMIN_PASSWORD: password, SANDGATE_OPERATOR_SECOND_FACTOR: "required" };
    await open(env);
    const admin = "admin@localhost";
    const { users } = await identity.batchGetUsers({ usernames: [admin] }, nobody());
    const id = users[0]?.id ?? "";
    const rightsOf = async (tokens: SessionTokens | undefined) => {
      const { op, op_needs } = await verifyAccessToken(tokens?.accessToken ?? "");
      return op_needs ?? op;
    };
    const start = async (otp?: string) =>
      (await identity.signIn({ username: admin, password, ...(otp !== undefined && { otp }) }, nobody())).tokens;
    const refresh = async (tokens: SessionTokens | undefined) =>
      (await identity.refreshSession({ refreshToken: tokens?.refreshToken ?? "" }, nobody())).tokens;
    const { token } = await identity.createApiToken({ description: "ci" }, as(id));
    const hasApiTokenRights = async () => (await identity.verifyApiToken({ token }, nobody())).operator;

    const without = await start();
    expect(await rightsOf(without)).toBe("second_factor");
    expect(await hasApiTokenRights()).toBe(false);
    const { secret } = await enroll(id);
    expect(await hasApiTokenRights()).toBe(true);
    expect(await rightsOf(await refresh(without))).toBe("second_factor");
    const withOne = await start(codeOf(secret, now + 30_000));
    expect(await rightsOf(withOne)).toBe(true);
    const refreshed = await refresh(withOne);
    expect(await rightsOf(refreshed)).toBe(true);

    now += 60_000;
    await identity.deleteSecondFactor({ password, otp: codeOf(secret) }, as(id));
    expect(await rightsOf(await refresh(refreshed))).toBe("second_factor");
    expect(await hasApiTokenRights()).toBe(false);

    await close();
    await open({ ...env, SANDGATE_OPERATOR_SECOND_FACTOR: "optional" });
    expect(await rightsOf(await start())).toBe(true);
    expect(await hasApiTokenRights()).toBe(true);
  });
});

describe("API tokens", () => {
  test("a token is shown once, verified, listed without its secret and revoked", async () => {
    await open();
    const id = await createUser();
    const workspaceId = newId();
    const { apiToken, token } = await identity.createApiToken({ description: "ci", workspaceId }, as(id));
    expect(token).toMatch(/^sgt_[0-9A-Za-z]{36}$/);
    const tokenId = apiToken?.id ?? "";
    now += 90_000;
    const verified = await identity.verifyApiToken({ token }, nobody());
    expect(verified).toMatchObject({ tokenId, userId: id, workspaceId, operator: false });
    expect(verified.expiresAt).toBeUndefined();
    const { apiTokens } = await identity.listApiTokens({}, as(id));
    expect(apiTokens).toMatchObject([{ id: tokenId, description: "ci", tokenHint: token.slice(0, 8), workspaceId }]);
    const [listed] = apiTokens;
    expect(listed?.lastUsedAt && timestampDate(listed.lastUsedAt).toISOString()).toBe("2026-01-01T00:01:00.000Z");

    const heard: string[] = [];
    bus.watch("identity.api_tokens.revoked", (body) => heard.push(body));
    await identity.revokeApiToken({ tokenOrId: token }, as(id));
    expect(heard).toEqual([tokenId]);
    await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
    for (const tokenOrId of [token, tokenId, "", "sgt_nonsense"]) {
      await expect(identity.revokeApiToken({ tokenOrId }, as(id))).rejects.toMatchObject({
        reason: "API_KEY_NOT_FOUND",
      });
    }
  });

  test("a revocation whose answer was lost is made again, by the facade itself, and succeeds", async () => {
    await open();
    const id = await createUser();
    const { apiToken, token } = await identity.createApiToken({ description: "ci" }, as(id));
    const served = network.transport("facade", "identity");
    const { signer } = await createInternalKeys(["facade"]);
    let calls = 0;
    const cutting: Transport = {
      stream: served.stream,
      async unary(method, signal, timeoutMs, header, input) {
        // Signed already by the transport that it goes through.
        const key = new Headers(header).get("idempotency-key") ?? "";
        const answer = await served.unary(
          method,
          signal,
          timeoutMs,
          undefined,
          input,
          as(id, { idempotencyKey: key }).contextValues,
        );
        calls += 1;
        if (calls === 1) throw new ConnectError("connection lost", Code.Aborted);
        return answer;
      },
    };
    const facade = createClient(
      IdentityService,
      createCallingTransport({ inner: cutting, signer: signer("facade"), audience: "identity" }),
    );
    await facade.revokeApiToken({ tokenOrId: token }, as(id, { idempotencyKey: "one request" }));
    expect(calls).toBe(2);
    for (const tokenOrId of [token, apiToken?.id ?? ""]) {
      const next = as(id, { idempotencyKey: newId() });
      await expect(facade.revokeApiToken({ tokenOrId }, next)).rejects.toMatchObject({ reason: "API_KEY_NOT_FOUND" });
    }
  });

  test("another user's token can't be revoked, neither by itself nor by its id", async () => {
    await open();
    const id = await createUser();
    const { apiToken, token } = await identity.createApiToken({ description: "ci" }, as(id));
    for (const tokenOrId of [token, apiToken?.id ?? ""]) {
      await expect(identity.revokeApiToken({ tokenOrId }, as(newId()))).rejects.toMatchObject({
        reason: "API_KEY_NOT_FOUND",
      });
    }
    await identity.revokeApiToken({ tokenOrId: apiToken?.id ?? "" }, as(id));
    await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("a token expires at its time, which must be in the future", async () => {
    await open();
    const id = await createUser();
    const expiring = (ms: number) => ({ description: "ci", expiresAt: timestampFromMs(ms) });
    await expect(identity.createApiToken(expiring(now), as(id))).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
      violations: [{ field: "expires_at" }],
    });
    const { token } = await identity.createApiToken(expiring(now + 1000), as(id));
    await identity.verifyApiToken({ token }, nobody());
    now += 1000;
    await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("a token lasts no longer than an operator allows, and as long unless it is made to expire earlier", async () => {
    await open({ SANDGATE_API_TOKEN_MAX_DAYS: "30" });
    const id = await createUser();
    const latest = now + 30 * dayMs;
    const { apiToken } = await identity.createApiToken({ description: "ci" }, as(id));
    expect(apiToken?.expiresAt && timestampDate(apiToken.expiresAt)).toEqual(new Date(latest));
    const expiring = (ms: number) => ({ description: "ci", expiresAt: timestampFromMs(ms) });
    await identity.createApiToken(expiring(latest), as(id));
    await expect(identity.createApiToken(expiring(latest + 1), as(id))).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
      violations: [{ field: "expires_at", issue: "must be within 30 days, the limit that an operator has set" }],
    });
  });

  test("a token with a role says so, and has no rights of an operator", async () => {
    await open({ SANDGATE_ADMIN_PASSWORD: password });
    const { users } = await identity.batchGetUsers({ usernames: ["admin@localhost"] }, nobody());
    const id = users[0]?.id ?? "";
    const limited = await identity.createApiToken({ description: "ci", role: Role.OWNER }, as(id));
    expect(limited.apiToken?.role).toBe(Role.OWNER);
    expect(await identity.verifyApiToken({ token: limited.token }, nobody())).toMatchObject({
      operator: false,
      role: Role.OWNER,
    });
    const { token } = await identity.createApiToken({ description: "ci" }, as(id));
    expect(await identity.verifyApiToken({ token }, nobody())).toMatchObject({
      operator: true,
      role: Role.UNSPECIFIED,
    });
    const { apiTokens } = await identity.listApiTokens({}, as(id));
    expect(apiTokens.map(({ role }) => role)).toEqual([Role.UNSPECIFIED, Role.OWNER]);
  });

  test("a workspace must be a UUID", async () => {
    await open();
    const request = { description: "ci", workspaceId: "lab" };
    await expect(identity.createApiToken(request, as(newId()))).rejects.toMatchObject({
      violations: [{ field: "workspace_id" }],
    });
  });

  test("the same Idempotency-Key gets the same token, another request with it a conflict", async () => {
    await open();
    const id = await createUser();
    const request = { description: "ci" };
    const first = await identity.createApiToken(request, as(id, { idempotencyKey: "k" }));
    expect((await identity.createApiToken(request, as(id, { idempotencyKey: "k" }))).token).toBe(first.token);
    await expect(
      identity.createApiToken({ description: "other" }, as(id, { idempotencyKey: "k" })),
    ).rejects.toMatchObject({ reason: "CONFLICT" });
    expect((await identity.listApiTokens({}, as(id))).apiTokens).toHaveLength(1);
  });

  test("a user has 50 unless set, and a retry of the last one still gets it", async () => {
    await open();
    const id = await createUser();
    const last = { idempotencyKey: "last" };
    for (let had = 0; had < 49; had++) await identity.createApiToken({ description: "ci" }, as(id));
    const { token } = await identity.createApiToken({ description: "last" }, as(id, last));
    const { apiTokens } = await identity.listApiTokens({}, as(id));
    expect(apiTokens).toHaveLength(50);
    await expect(identity.createApiToken({ description: "ci" }, as(id))).rejects.toMatchObject({
      reason: "CONFLICT",
      hint: expect.stringContaining("may have 50 API tokens"),
    });
    expect((await identity.createApiToken({ description: "last" }, as(id, last))).token).toBe(token);
    await identity.revokeApiToken({ tokenOrId: apiTokens[9]?.id ?? "" }, as(id));
    await identity.createApiToken({ description: "ci" }, as(id));
  });

  test("the list comes in pages, newest first", async () => {
    await open();
    const id = await createUser();
    for (const description of ["one", "two", "three"]) await identity.createApiToken({ description }, as(id));
    const first = await identity.listApiTokens({ page: { limit: 2 } }, as(id));
    const rest = await identity.listApiTokens({ page: { limit: 2, cursor: first.nextCursor } }, as(id));
    expect([...first.apiTokens, ...rest.apiTokens].map(({ description }) => description)).toEqual([
      "three",
      "two",
      "one",
    ]);
    expect(rest.nextCursor).toBe("");
    await expect(identity.listApiTokens({ page: { cursor: "x" } }, as(id))).rejects.toMatchObject({
      violations: [{ field: "query.cursor" }],
    });
  });

  test("an API token can't manage API tokens, and only the facade may ask for them", async () => {
    await open();
    await expect(identity.listApiTokens({}, as(newId(), { credential: "api_token" }))).rejects.toMatchObject({
      reason: "FORBIDDEN",
    });
    const workspace = createClient(IdentityService, network.transport("workspace", "identity"));
    await expect(workspace.verifyApiToken({ token: "" }, asService())).rejects.toThrow();
    expect(await workspace.batchGetUsers({ userIds: [newId()] }, asService())).toMatchObject({ users: [] });
  });
});

describe("abuse", () => {
  const signInFrom = (address: string, given = password) =>
    identity.signIn({ username, password: given, client: { address } }, from(address));
  const wrong = { reason: "INVALID_CREDENTIALS" };
  const limited = { reason: "RATE_LIMITED", retryAfterSeconds: expect.any(Number) };
  const files = async () => (await readdir(join(folder, "mail"))).filter((name) => name.endsWith(".eml"));

  test("wrong passwords from one address keep the user out nowhere else", async () => {
    await open();
    await createUser();
    for (let i = 0; i < 10; i++) await expect(signInFrom("203.0.113.1", "wrong")).rejects.toMatchObject(wrong);
    await expect(signInFrom("203.0.113.1", "wrong")).rejects.toMatchObject(limited);
    await signInFrom("192.0.2.1");
  });

  test("while many guess from everywhere, the user gets in from where they did before", async () => {
    await open({ SANDGATE_SIGNIN_RATE_LIMIT: "1" });
    await createUser();
    await signInFrom("192.0.2.1");
    now += 60_000;
    for (let i = 0; i < 5; i++) await expect(signInFrom(`203.0.${i}.1`, "wrong")).rejects.toMatchObject(wrong);
    await expect(signInFrom("198.51.100.1")).rejects.toMatchObject(limited);
    await signInFrom("192.0.2.1");
    now += 60_000;
    await signInFrom("198.51.100.1");
  });

  test("passwords that are set or confirmed don't fill the queue of sign-ins", async () => {
    await open();
    const id = await createUser();
    const confirming = Array.from({ length: 60 }, () => identity.deleteAccount({ password: "wrong" }, as(id)));
    const outcomes = Promise.allSettled(confirming);
    await signedIn();
    const refused = (await outcomes).filter(
      (outcome) => outcome.status === "rejected" && outcome.reason.reason === "RATE_LIMITED",
    );
    expect(refused.length).toBeGreaterThan(0);
  });

  test("sign-ins from anywhere don't keep those from an account's own networks waiting", async () => {
    await open();
    await createUser();
    await signInFrom("192.0.2.1");
    const flood = Array.from({ length: 60 }, (_, i) =>
      identity.signIn(
        { username: `${i}@example.com`, password: "wrong", client: { address: `203.0.${i}.1` } },
        from(`203.0.${i}.1`),
      ),
    );
    const outcomes = Promise.allSettled(flood);
    await signInFrom("192.0.2.1");
    const refused = (await outcomes).filter(
      (outcome) => outcome.status === "rejected" && outcome.reason.reason === "RATE_LIMITED",
    );
    expect(refused.length).toBeGreaterThan(0);
  });

  test("a password can be changed, which sends a mail, ten times an hour", async () => {
    await open();
    const id = await createUser();
    const change = (turn: number) =>
      identity.changePassword({ currentPassword: `${password} ${turn}`, password: `${password} ${turn + 1}` }, as(id));
    await identity.changePassword({ currentPassword: password, password: `${password} 1` }, as(id));
    for (let turn = 1; turn < 10; turn++) await change(turn);
    await expect(change(10)).rejects.toMatchObject(limited);
    now += 3_600_000;
    await change(10);
  });

  test("a mailbox gets five mails an hour, and every request the same answer", async () => {
    await open();
    for (let i = 0; i < 9; i++) {
      await identity.register({ username: `ann+${i}@example.com`, password }, from(`192.0.${i}.1`));
    }
    await readMails(3);
    for (let i = 0; i < 4; i++) {
      await identity.resendVerification({ username: "ann+0@example.com" }, nobody());
      await identity.resendVerification({ username: "nobody@example.com" }, nobody());
    }
    await readMails(5);
    await close();
    expect(await files()).toHaveLength(5);
    now += 3_600_000;
    await open();
    await identity.resendVerification({ username: "ann+8@example.com" }, nobody());
    expect((await readMails(6)).some(({ text }) => text.includes("To: ann+8@example.com"))).toBe(true);
  });

  test("registrations of a taken name leave its user the mails that set a password", async () => {
    await open();
    await createUser();
    for (let i = 0; i < 5; i++) await identity.register({ username, password }, nobody());
    const before = await readMails(3);
    await identity.requestPasswordReset({ username }, nobody());
    expect((await readMails(4)).some(({ text }) => text.includes("/auth/password/reset?token="))).toBe(true);
    expect(before.some(({ text }) => text.includes("/auth/password/reset?token="))).toBe(false);
  });

  test("an address causes so many mails an hour, whatever the names", async () => {
    await open({ SANDGATE_NETWORK_MAILS_PER_HOUR: "3" });
    await identity.register({ username, password }, from("192.0.2.1"));
    await identity.resendVerification({ username }, from("192.0.2.1"));
    await identity.requestPasswordReset({ username: "nobody@example.com" }, from("192.0.2.1"));
    for (const ask of [
      () => identity.register({ username: "bob@example.com", password }, from("192.0.2.1")),
      () => identity.resendVerification({ username }, from("192.0.2.1")),
      () => identity.requestPasswordReset({ username: "nobody@example.com" }, from("192.0.2.1")),
    ]) {
      await expect(ask()).rejects.toMatchObject(limited);
    }
    await identity.resendVerification({ username }, from("192.0.3.1"));
  });

  test("with a secret, registrations and sign-ins need a reCAPTCHA token, before the password is looked at", async () => {
    const provider = createServer((request, response) => {
      request.resume().on("end", () => response.end(JSON.stringify({ success: true, hostname: "sandgate.example" })));
    });
    await once(provider.listen(0, "127.0.0.1"), "listening");
    const address = provider.address();
    if (address === null || typeof address === "string") throw new Error("The server has no port.");
    const settings = {
      SANDGATE_RECAPTCHA_URL: `http://127.0.0.1:${address.port}/`,
      SANDGATE_PUBLIC_URL: "https://sandgate.example/api",
    };
    await open(settings);
    await createUser();
    await close();
    await open({ ...settings, SANDGATE_RECAPTCHA_SECRET: "shh" });
    const missing = { reason: "VALIDATION_ERROR", violations: [{ field: "recaptcha_token" }] };
    for (const given of [password, "wrong"])
      await expect(signInFrom("192.0.2.1", given)).rejects.toMatchObject(missing);
    await expect(identity.register({ username, password: "password123" }, nobody())).rejects.toMatchObject(missing);
    await identity.signIn({ username, password, recaptchaToken: "token 1" }, nobody());
    await identity.register({ username, password, recaptchaToken: "token 2" }, nobody());
    provider.closeAllConnections();
    provider.close();
    await expect(
      identity.signIn({ username, password: "wrong", recaptchaToken: "token 3" }, nobody()),
    ).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  });
});

test.each([
  { SANDGATE_RECAPTCHA_MIN_SCORE: "1.5" },
  { SANDGATE_RECAPTCHA_URL: "google.com" },
  { SANDGATE_PUBLIC_URL: "sandgate.example" },
  { SANDGATE_SMTP_URL: "mail.example:25" },
  { SANDGATE_ADMIN_PASSWORD: "short" },
])("a bad setting is named: %o", async (env) => {
  await expect(open(env)).rejects.toThrow(Object.keys(env)[0]);
  await bus.close();
  await open();
});

test("a key ring that doesn't open the signing keys fails the start", async () => {
  await open();
  await close();
  await rename(join(folder, "keys.json"), join(folder, "kept.json"));
  await expect(open()).rejects.toThrow();
  await bus.close();
  await rename(join(folder, "kept.json"), join(folder, "keys.json"));
  await open();
});

test("dependencies are reported", async () => {
  await open();
  expect(await service.dependencies()).toEqual({ database: "ok", mail: "ok" });
});
