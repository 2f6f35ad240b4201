import { describe, expect, test } from "vitest";
import { createPasswordHasher, newPassword } from "./hasher.ts";

const cheap = { memory: 64, passes: 1, parallelism: 1 };

describe("passwords", () => {
  test("are stored as PHC strings of argon2id with OWASP's parameters, each with a salt of its own", async () => {
    const hasher = createPasswordHasher();
    const [first, second] = await Promise.all([hasher.hash("correct horse"), hasher.hash("correct horse")]);
    expect(first).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
    expect(first).not.toBe(second);
    expect(await hasher.verify("correct horse", first)).toBe(true);
    expect(await hasher.verify("Correct horse", first)).toBe(false);
  });

  test("are checked with the parameters they were stored with", async () => {
    const hasher = createPasswordHasher({ work: { memory: 128, passes: 2, parallelism: 1 } });
    const hash = await createPasswordHasher({ work: cheap }).hash("password 1");
    expect(await hasher.verify("password 1", hash)).toBe(true);
  });

  test("match in every Unicode form", async () => {
    const hasher = createPasswordHasher({ work: cheap });
    expect(await hasher.verify("cafe\u0301 au lait", await hasher.hash("caf\u00e9 au lait"))).toBe(true);
  });

  test("of an unknown user are never right", async () => {
    const hasher = createPasswordHasher({ work: cheap });
    expect(await hasher.verify("", undefined)).toBe(false);
    expect(await hasher.verify("anything", undefined)).toBe(false);
  });

  test("wait in a bounded queue; beyond it they are refused with a time to come back", async () => {
    const hasher = createPasswordHasher({ work: cheap, concurrency: 1, queueLength: 2 });
    const accepted = [1, 2, 3].map(() => hasher.hash("password"));
    await expect(hasher.hash("password")).rejects.toMatchObject({ reason: "RATE_LIMITED", retryAfterSeconds: 2 });
    await expect(hasher.verify("password", undefined)).rejects.toMatchObject({ reason: "RATE_LIMITED" });
    expect(await Promise.all(accepted)).toHaveLength(3);
    expect(await hasher.verify("password", await hasher.hash("password"))).toBe(true);
  });

  test("a failed hash doesn't block the queue", async () => {
    const hasher = createPasswordHasher({ work: cheap, concurrency: 1 });
    await expect(hasher.verify("password", "no hash")).rejects.toThrow("can't be read");
    expect(await hasher.verify("password", undefined)).toBe(false);
  });

  test("generated for an operator are long enough", () => {
    expect(newPassword()).toMatch(/^[A-Za-z0-9_-]{24}$/);
  });
});
