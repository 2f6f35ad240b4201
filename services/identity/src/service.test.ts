import { once } from "node:events";
import { readdir, rename } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { stageEvent } from "@sandgate/kit/events/outbox";
import { asFacade } from "@sandgate/kit/rpc/context";
import { Role } from "@sandgate/proto/common/v1/access";
import { MemberAddedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
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

describe("names", () => {
  const find = async (name: string, asker: string) =>
    (await identity.batchGetUsers({ usernames: [name] }, as(asker))).users.length;
  const limited = { reason: "RATE_LIMITED", retryAfterSeconds: 3600 };

  test("that nobody has are few for each user in an hour, and then no name is found", async () => {
    await open();
    const id = await createUser();
    for (let i = 0; i < 30; i++) expect(await find(username, "bob")).toBe(1);
    for (let i = 0; i < 20; i++) expect(await find(`nobody${i}@example.com`, "bob")).toBe(0);
    for (const name of [username, "nobody@example.com"]) await expect(find(name, "bob")).rejects.toMatchObject(limited);
    expect(await find(username, "eve")).toBe(1);
    // Ids are no names, and the platform itself asks as it needs.
    expect((await identity.batchGetUsers({ userIds: [id] }, as("bob"))).users).toHaveLength(1);
    for (let i = 0; i < 30; i++) await identity.batchGetUsers({ usernames: ["nobody@example.com"] }, nobody());
    advance(3_600_000);
    expect(await find(username, "bob")).toBe(1);
  });

  test("that many requests ask for at once are as few", async () => {
    await open();
    await identity.register({ username: "unverified@example.com", password }, nobody());
    const asked = ["unverified@example.com", ...Array.from({ length: 59 }, (_, i) => `nobody${i}@example.com`)];
    const outcomes = await Promise.allSettled(asked.map((name) => find(name, "bob")));
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(20);
  });
});

test("who is added to a workspace gets one mail, which says who did it and how to leave", async () => {
  await open({ SANDGATE_PUBLIC_URL: "https://sandgate.example" });
  const userId = await createUser();
  const workspaceId = newId();
  const added = stageEvent({
    subject: "sandgate.workspace.member.added.v1",
    entityId: `${workspaceId}/${userId}`,
    entityVersion: 2,
    workspaceId,
    call: { requestId: newId(), user: { id: userId, credential: "session", credentialId: newId() } },
    schema: MemberAddedSchema,
    payload: { workspaceId, userId, role: Role.MEMBER },
  });
  await bus.publish([added]);
  const [, notice] = await readMails(2);
  expect(notice?.text).toContain(`${username} added you to the workspace\n${workspaceId}.`);
  expect(notice?.text).toContain(`DELETE https://sandgate.example/workspaces/${workspaceId}/members/${userId}`);
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

  test("a mailbox gets so many mails an hour, from however many networks, and every request the same answer", async () => {
    await open();
    for (let i = 0; i < 9; i++) {
      await identity.register({ username: `ann+${i}@example.com`, password }, from(`192.0.${i}.1`));
    }
    // Three fifths of five, and as many that networks asked for which had asked for none.
    await readMails(6);
    for (let i = 0; i < 4; i++) {
      await identity.resendVerification({ username: "ann+0@example.com" }, nobody());
      await identity.resendVerification({ username: "nobody@example.com" }, nobody());
    }
    await readMails(8);
    await close();
    expect(await files()).toHaveLength(8);
    advance(3_600_000);
    await open();
    await identity.resendVerification({ username: "ann+8@example.com" }, nobody());
    expect((await readMails(9)).some(({ text }) => text.includes("To: ann+8@example.com"))).toBe(true);
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
  { SANDGATE_ADMIN_PASSWORD: "Admin@Localhost" },
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

test("a limit that facades share has a window of a minute, or of as long as they ask for", async () => {
  await open();
  const draw = async (key: number, windowSeconds?: number) =>
    identity.drawRequests(
      { key: new Uint8Array(32).fill(key), limit: 2, wanted: 5, ...(windowSeconds && { windowSeconds }) },
      asFacade({ requestId: "r" }),
    );
  expect(await draw(1)).toMatchObject({ granted: 2, remaining: 0, resetMs: 60_000 });
  expect(await draw(2, 3600)).toMatchObject({ granted: 2, remaining: 0, resetMs: 3_600_000 });
  advance(3_599_000);
  expect([(await draw(1)).granted, (await draw(2, 3600)).granted]).toEqual([2, 0]);
  advance(1_000);
  expect((await draw(2, 3600)).granted).toBe(2);
});
