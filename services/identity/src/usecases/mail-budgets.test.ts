import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { hourMs } from "@sandgate/kit/base/time";
import { test as base } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { createMailBudgets } from "./mail-budgets.ts";

type Purpose = Parameters<ReturnType<typeof createMailBudgets>["mayMail"]>[0]["purpose"];

const test = base.extend("budgets", async ({ folder }, { onCleanup }) => {
  const opened = await openBudgets(folder);
  onCleanup(opened.close);
  return opened;
});

async function openBudgets(folder: string) {
  let now = Date.UTC(2026, 0, 1);
  const logLines: string[] = [];
  const logger = createLogger({ service: "identity" }, { write: (line: string) => void logLines.push(line) });
  const store = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  const open = (limits: { perMailbox: number; perNetwork: number; inAll: number }) => {
    const { countRequest, mayMail } = createMailBudgets({ store, limits, logger, now: () => new Date(now) });
    const mayMailTo = (username: string, purpose: Purpose, address?: string, more: { fromOwnNetwork?: boolean } = {}) =>
      mayMail({ username, purpose, address, ...more });
    /** How many of so many requests are granted. */
    const count = async (of: number, username: string, purpose: Purpose, address?: (i: number) => string) => {
      let granted = 0;
      for (let i = 0; i < of; i++) if (await mayMailTo(username, purpose, address?.(i))) granted += 1;
      return granted;
    };
    return { countRequest, mayMailTo, count };
  };
  return {
    logLines,
    open,
    pass(ms: number) {
      now += ms;
    },
    close: () => store.close(),
  };
}

test("a mailbox gets so many mails an hour, whatever sub-address and case they are sent to", async ({ budgets }) => {
  const { mayMailTo } = budgets.open({ perMailbox: 3, perNetwork: 0, inAll: 0 });
  const names = ["ann@example.com", "Ann+1@Example.com", "ann+a+b@example.com", "ann+2@example.com"];
  const granted: boolean[] = [];
  for (const name of names) granted.push(await mayMailTo(name, "verification"));
  expect(granted).toEqual([true, true, true, false]);
  expect(await mayMailTo("ann@example.org", "verification")).toBe(true);
  expect(await mayMailTo("+ann@example.com", "verification")).toBe(true);
  budgets.pass(hourMs);
  expect(await mayMailTo("ann+3@example.com", "reset")).toBe(true);
});

test("an address causes so many mails an hour, and the networks around it some more", async ({ budgets }) => {
  const { countRequest } = budgets.open({ perMailbox: 0, perNetwork: 2, inAll: 0 });
  const refused = { reason: "RATE_LIMITED", retryAfterSeconds: 3600 };
  for (let i = 0; i < 2; i++) await countRequest("192.0.2.1");
  await expect(countRequest("192.0.2.1")).rejects.toMatchObject(refused);
  for (let i = 0; i < 14; i++) await countRequest(`192.0.2.${2 + i}`);
  await expect(countRequest("192.0.2.99")).rejects.toMatchObject(refused);
  await countRequest("192.0.3.1");
});

test("registrations leave two of five mails to a mailbox to the links that its user asks for", async ({ budgets }) => {
  const { count } = budgets.open({ perMailbox: 5, perNetwork: 0, inAll: 0 });
  expect(await count(9, "ann@example.com", "registration")).toBe(3);
  expect(await count(9, "ann@example.com", "reset")).toBe(2);
});

test("who has no verified account can't use up the mails of all, and the log tells when they have used up their part", async ({
  budgets,
}) => {
  const { mayMailTo } = budgets.open({ perMailbox: 0, perNetwork: 0, inAll: 5 });
  const granted: boolean[] = [];
  for (let i = 0; i < 6; i++) granted.push(await mayMailTo(`${i}@example.com`, "verification"));
  expect(granted).toEqual([true, true, true, false, false, false]);
  expect(budgets.logLines).toHaveLength(1);
  expect(await mayMailTo("ann@example.com", "reset")).toBe(true);
  expect(await mayMailTo("ann@example.com", "reset")).toBe(false);
});

const attacker = (i: number) => `198.51.${100 + (i % 4)}.${i % 256}`;

test("what one address asks for leaves mails to a mailbox for its user, from wherever", async ({ budgets }) => {
  const { count, mayMailTo } = budgets.open({ perMailbox: 5, perNetwork: 0, inAll: 0 });
  for (const purpose of ["registration", "verification", "reset"] as const) {
    const ann = `${purpose}@example.com`;
    expect(await count(30, ann, purpose, () => attacker(0))).toBe(3);
    expect(await mayMailTo(ann, purpose, "192.0.2.1")).toBe(true);
  }
});

test("a flood from several networks to a mailbox ends, and one that hasn't asked for any still gets its mail", async ({
  budgets,
}) => {
  const { count, mayMailTo } = budgets.open({ perMailbox: 5, perNetwork: 0, inAll: 0 });
  const ann = "ann@example.com";
  // Five that all share, and one of each of the four networks as a newcomer.
  expect(await count(400, ann, "verification", attacker)).toBe(9);
  expect(await mayMailTo(ann, "verification", "192.0.2.1")).toBe(true);
  expect(await mayMailTo(ann, "verification", "192.0.2.1")).toBe(false);
  expect(await count(400, ann, "reset", (i) => `203.${i % 256}.113.1`)).toBe(0);
  expect(await mayMailTo(ann, "reset", "192.0.2.1", { fromOwnNetwork: true })).toBe(true);
});

test("a party that uses up the mails of all leaves some to networks that have hardly asked for any", async ({
  budgets,
}) => {
  const { mayMailTo } = budgets.open({ perMailbox: 0, perNetwork: 0, inAll: 50 });
  const granted: boolean[] = [];
  for (let i = 0; i < 400; i++) granted.push(await mayMailTo(`${i}@example.com`, "registration", attacker(0)));
  // Three fifths, and three as a newcomer.
  expect(granted.filter(Boolean)).toHaveLength(33);
  expect(await mayMailTo("ann@example.com", "registration", "192.0.2.1")).toBe(true);
});

test("a mailbox that gets no more uses up nobody else's", async ({ budgets }) => {
  const { mayMailTo } = budgets.open({ perMailbox: 1, perNetwork: 0, inAll: 5 });
  for (let i = 0; i < 20; i++) await mayMailTo("ann@example.com", "verification");
  for (const name of ["bob@example.com", "eve@example.com"]) expect(await mayMailTo(name, "verification")).toBe(true);
});

test("0 is no limit, and so is a client whose address isn't known", async ({ budgets }) => {
  const unlimited = budgets.open({ perMailbox: 0, perNetwork: 0, inAll: 0 });
  for (let i = 0; i < 20; i++) {
    await unlimited.countRequest("192.0.2.1");
    expect(await unlimited.mayMailTo("ann@example.com", "verification", "192.0.2.1")).toBe(true);
  }
  const { countRequest } = budgets.open({ perMailbox: 0, perNetwork: 1, inAll: 0 });
  for (let i = 0; i < 3; i++) await countRequest(undefined);
});
