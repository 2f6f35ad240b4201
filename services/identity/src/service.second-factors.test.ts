import { newId } from "@sandgate/kit/base/ids";
import { asFacade } from "@sandgate/kit/rpc/context";
import type { SessionTokens } from "@sandgate/proto/identity/v1/identity";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { Secret, TOTP } from "otpauth";
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
  now,
  open,
  password,
  readMails,
  service,
  signedIn,
  signedInAs,
  username,
  useService,
  verifyAccessToken,
} from "./service.fixture.ts";

useService();

describe("second factors", () => {
  const codeOf = (secret: string, at = now) => TOTP.generate({ secret: Secret.fromBase32(secret), timestamp: at });
  const signInWith = (otp?: string, given = password) =>
    identity.signIn({ username, password: given, ...(otp !== undefined && { otp }) }, nobody());
  const wrongCode = { reason: "INVALID_CREDENTIALS", violations: [{ field: "otp" }] };

  /** A user with a second factor, whose code of this time step is used up. */
  async function enroll(id: string, who = username) {
    const own = await signedInAs(id, who);
    const { secret } = await identity.createSecondFactor({ password }, own());
    const { recoveryCodes } = await identity.confirmSecondFactor({ otp: codeOf(secret) }, own());
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
    const early = await signedInAs(id);
    const late = await identity.createSecondFactor({ password }, early());
    advance(600_000);
    const own = await signedInAs(id);
    await expect(identity.confirmSecondFactor({ otp: codeOf(late.secret) }, own())).rejects.toMatchObject({
      reason: "CONFLICT",
    });
    const { secret, uri } = await identity.createSecondFactor({ password }, own());
    expect(uri).toContain(`secret=${secret}`);
    await expect(identity.confirmSecondFactor({ otp: codeOf(late.secret) }, own())).rejects.toMatchObject(wrongCode);
    // Nothing is asked for before it is confirmed.
    await signedIn();
    expect(await identity.getSecondFactor({}, as(id))).toMatchObject({ enabled: false, recoveryCodesLeft: 0 });
    const { recoveryCodes } = await identity.confirmSecondFactor({ otp: codeOf(secret) }, own());
    expect(recoveryCodes).toHaveLength(10);
    expect(await identity.getSecondFactor({}, as(id))).toMatchObject({ enabled: true, recoveryCodesLeft: 10 });
    await expect(identity.createSecondFactor({ password }, own())).rejects.toMatchObject({ reason: "CONFLICT" });
    expect((await readMails(2)).some(({ text }) => text.includes("has a second factor"))).toBe(true);
  });

  test("setting one up, and confirming it, need a sign-in of the last five minutes besides the password", async () => {
    await open();
    const id = await createUser();
    const stale = await signedInAs(id);
    const refused = { reason: "FORBIDDEN", hint: "Sign in again, then retry." };
    advance(299_999);
    const { secret } = await identity.createSecondFactor({ password }, stale());
    advance(1);
    await expect(identity.createSecondFactor({ password }, stale())).rejects.toMatchObject(refused);
    await expect(identity.confirmSecondFactor({ otp: codeOf(secret) }, stale())).rejects.toMatchObject(refused);
    await expect(identity.createSecondFactor({ password: "wrong password" }, stale())).rejects.toMatchObject({
      reason: "INVALID_CREDENTIALS",
    });
    const own = await signedInAs(id);
    expect((await identity.confirmSecondFactor({ otp: codeOf(secret) }, own())).recoveryCodes).toHaveLength(10);
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
    advance(30_000);
    await expect(signInWith(next)).rejects.toMatchObject(wrongCode);
    advance(30_000);
    await signInWith(codeOf(secret));
  });

  test("wrong codes in a row are refused for a while, a recovery code works once, and other accounts are as before", async () => {
    await open();
    const id = await createUser();
    const { secret, recoveryCodes } = await enroll(id);
    advance(60_000);
    for (let i = 0; i < 5; i++) await expect(signInWith("000000")).rejects.toMatchObject(wrongCode);
    await expect(signInWith(codeOf(secret))).rejects.toMatchObject({ reason: "RATE_LIMITED", retryAfterSeconds: 30 });
    // Who doesn't know the password neither sees nor changes that.
    await expect(signInWith("000000", "wrong password")).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
    advance(30_000);
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
    advance(60_000);
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
    advance(60_000);
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

  test("a command on the server's machine removes a user's, as an operator does", async () => {
    await open();
    const id = await createUser();
    await enroll(id);
    const published: unknown[] = [];
    const consumption = await bus.consume({
      consumer: "test",
      subjects: ["sandgate.identity.user.second_factor_removed.v1"],
      handle: async ({ entityId, actor }) => void published.push([entityId, actor]),
    });
    const remove = (name: string) => service.commands?.["remove-second-factor"]?.(new Set([name]));
    expect(await remove("ann@EXAMPLE.com")).toEqual({ username, second_factor: "removed" });
    expect(await remove("ann@EXAMPLE.com")).toEqual({ username, second_factor: "none" });
    const refusal = { reason: "NOT_FOUND", message: "There is no user of this name." };
    await expect(remove("nobody@example.com")).rejects.toMatchObject(refusal);
    await signedIn();
    await until(() => expect(published).toEqual([[id, undefined]]));
    await consumption.stop();
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
    const makeApiToken = async (tokens: SessionTokens | undefined) => {
      const { sid } = await verifyAccessToken(tokens?.accessToken ?? "");
      return (await identity.createApiToken({ description: "ci" }, as(id, { credentialId: String(sid) }))).token;
    };
    const hasRights = async (token: string) => (await identity.verifyApiToken({ token }, nobody())).operator;

    const without = await start();
    expect(await rightsOf(without)).toBe("second_factor");
    const early = await makeApiToken(without);
    expect(await hasRights(early)).toBe(false);
    const { secret } = await enroll(id, admin);
    const late = await makeApiToken(without);
    expect([await hasRights(early), await hasRights(late)]).toEqual([false, false]);
    expect(await rightsOf(await refresh(without))).toBe("second_factor");
    const withOne = await start(codeOf(secret, now + 30_000));
    expect(await rightsOf(withOne)).toBe(true);
    const full = await makeApiToken(withOne);
    expect(await hasRights(full)).toBe(true);
    const refreshed = await refresh(withOne);
    expect(await rightsOf(refreshed)).toBe(true);

    advance(60_000);
    await identity.deleteSecondFactor({ password, otp: codeOf(secret) }, as(id));
    expect(await rightsOf(await refresh(refreshed))).toBe("second_factor");
    expect(await hasRights(full)).toBe(false);

    await close();
    await open({ ...env, SANDGATE_OPERATOR_SECOND_FACTOR: "optional" });
    expect(await rightsOf(await start())).toBe(true);
    expect([await hasRights(early), await hasRights(full)]).toEqual([true, true]);
  });

  test("wrong codes from elsewhere don't keep out a user on a network of their own", async () => {
    await open();
    const { secret } = await enroll(await createUser());
    const signInFrom = (address: string, otp: string) =>
      identity.signIn({ username, password, otp, client: { address } }, from(address));
    const [home, attacker] = ["192.0.2.1", "198.51.100.1"];
    advance(60_000);
    await signInFrom(home, codeOf(secret));
    for (let i = 0; i < 5; i++) await expect(signInFrom(attacker, "000000")).rejects.toMatchObject(wrongCode);
    advance(30_000);
    await expect(signInFrom(attacker, "000000")).rejects.toMatchObject(wrongCode);
    await expect(signInFrom(attacker, codeOf(secret))).rejects.toMatchObject({ reason: "RATE_LIMITED" });
    expect((await signInFrom(home, codeOf(secret))).tokens).toBeDefined();
    await expect(signInFrom(attacker, "000000")).rejects.toMatchObject({ reason: "RATE_LIMITED" });
  });
});
