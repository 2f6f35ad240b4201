import { once } from "node:events";
import { readdir, rename } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { describe, expect } from "vitest";
import {
  advance,
  as,
  bus,
  close,
  createUser,
  folder,
  from,
  identity,
  nobody,
  open,
  password,
  readMails,
  service,
  signedIn,
  username,
  useService,
} from "./service.fixture.ts";

useService();

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
    advance(60_000);
    for (let i = 0; i < 5; i++) await expect(signInFrom(`203.0.${i}.1`, "wrong")).rejects.toMatchObject(wrong);
    await expect(signInFrom("198.51.100.1")).rejects.toMatchObject(limited);
    await signInFrom("192.0.2.1");
    advance(60_000);
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
    advance(3_600_000);
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
    advance(3_600_000);
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
