import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { minuteMs } from "@sandgate/kit/base/time";
import { test as base } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { createSignInAttempts } from "./sign-in-attempts.ts";

const logger = createLogger({ service: "identity", level: "silent" });
const userId = "ann";
const home = "198.51.100.7";

/** Attempts at ann's account; `try` answers whether one was let through. */
const test = base.extend("attempts", async ({ folder }, { onCleanup }) => {
  const opened = await openAttempts(folder);
  onCleanup(opened.close);
  return opened;
});

async function openAttempts(folder: string) {
  let now = Date.UTC(2026, 0, 1);
  const store = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  const attempts = createSignInAttempts({ store, perMinute: 10, now: () => new Date(now) });
  const admit = (address: string, who: string | undefined = userId, usernameKey = "ann@example.com") =>
    attempts.admit({ usernameKey, userId: who, address });
  return {
    ...attempts,
    admit,
    pass(ms: number) {
      now += ms;
    },
    /** How many of so many attempts from the address are let through. */
    async count(tries: number, address: string, who?: string, usernameKey?: string): Promise<number> {
      let admitted = 0;
      for (let i = 0; i < tries; i++) {
        await admit(address, who, usernameKey).then(
          () => {
            admitted += 1;
          },
          (refusal: unknown) => expect(refusal).toMatchObject({ reason: "RATE_LIMITED" }),
        );
      }
      return admitted;
    },
    close: () => store.close(),
  };
}

/** Addresses in so many networks of their own. */
const botnet = (size: number) => Array.from({ length: size }, (_, i) => `203.${i >> 8}.${i & 255}.1`);

test("an address has so many attempts a minute at an account, and is told when to come back", async ({ attempts }) => {
  expect(await attempts.count(15, "203.0.113.1")).toBe(10);
  attempts.pass(15_000);
  await expect(attempts.admit("203.0.113.1")).rejects.toMatchObject({ retryAfterSeconds: 45 });
  attempts.pass(45_000);
  expect(await attempts.count(15, "203.0.113.1")).toBe(10);
});

test("an attack from one address keeps nobody out elsewhere", async ({ attempts }) => {
  await attempts.count(100, "203.0.113.1");
  expect(await attempts.count(1, "192.0.2.1")).toBe(1);
});

test("an attack from many networks keeps a user out neither at home nor where they never were", async ({
  attempts,
}) => {
  await attempts.remember(userId, home);
  const bots = botnet(20);
  for (let minute = 0; minute < 3; minute++) {
    let admitted = 0;
    for (const bot of bots) admitted += await attempts.count(11, bot);
    expect(admitted).toBeLessThanOrEqual(50);
    attempts.pass(minuteMs);
  }
  for (const bot of bots) await attempts.count(11, bot);
  expect(await attempts.count(20, home)).toBe(10);
  expect(await attempts.count(5, "192.0.2.1")).toBe(5);
});

test("an account's own networks wait for no attack, however wide; others get in minute by minute", async ({
  attempts,
}) => {
  await attempts.remember(userId, home);
  for (const bot of botnet(200)) await attempts.count(1, bot);
  expect(await attempts.count(1, "192.0.2.1")).toBe(0);
  expect(await attempts.count(10, home)).toBe(10);
  attempts.pass(minuteMs);
  expect(await attempts.count(1, "192.0.2.1")).toBe(1);
});

test("addresses around one that attacks don't count as new", async ({ attempts }) => {
  for (let i = 0; i < 4; i++) {
    for (let host = 0; host < 50; host++) await attempts.count(1, `203.0.113.${host}`);
    for (let host = 0; host < 50; host++) await attempts.count(1, `2001:db8:1:${host}::1`);
  }
  expect(await attempts.count(10, "192.0.2.1")).toBe(5);
});

test("a network that the user hasn't signed in from for 90 days is like any other", async ({ attempts }) => {
  await attempts.remember(userId, home);
  attempts.pass(90 * 24 * 60 * minuteMs);
  for (const bot of botnet(60)) await attempts.count(1, bot);
  expect(await attempts.count(1, home)).toBe(0);
});

test("attempts at a name that nobody has are limited the same", async ({ attempts }) => {
  expect(await attempts.count(15, "203.0.113.1", undefined)).toBe(10);
  for (const bot of botnet(60)) await attempts.count(1, bot, undefined);
  expect(await attempts.count(1, "192.0.2.1", undefined)).toBe(0);
});

test("attempts at a name that reads like another's limit don't count there", async ({ attempts }) => {
  const crafted = "ann@example.com from 192.0.2.0/24";
  for (const bot of botnet(2)) await attempts.count(10, bot, "nobody", crafted);
  expect(await attempts.count(5, "198.51.100.1", "nobody", crafted)).toBe(5);
  for (const bot of botnet(4).slice(2)) await attempts.count(10, bot);
  expect(await attempts.count(10, "192.0.2.1")).toBe(5);
});
