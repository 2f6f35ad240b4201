import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { hourMs } from "@sandgate/kit/base/time";
import { test as base } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { createMailBudgets } from "./mail-budgets.ts";

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
  const open = (limits: { perMailbox: number; perNetwork: number; inAll: number }) =>
    createMailBudgets({ store, limits, logger, now: () => new Date(now) });
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
  const { mayMail } = budgets.open({ perMailbox: 3, perNetwork: 0, inAll: 0 });
  const names = ["ann@example.com", "Ann+1@Example.com", "ann+a+b@example.com", "ann+2@example.com"];
  const granted: boolean[] = [];
  for (const name of names) granted.push(await mayMail(name, "verification"));
  expect(granted).toEqual([true, true, true, false]);
  expect(await mayMail("ann@example.org", "verification")).toBe(true);
  expect(await mayMail("+ann@example.com", "verification")).toBe(true);
  budgets.pass(hourMs);
  expect(await mayMail("ann+3@example.com", "reset")).toBe(true);
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
  const { mayMail } = budgets.open({ perMailbox: 5, perNetwork: 0, inAll: 0 });
  const count = async (purpose: "registration" | "reset") => {
    let granted = 0;
    for (let i = 0; i < 9; i++) if (await mayMail("ann@example.com", purpose)) granted += 1;
    return granted;
  };
  expect([await count("registration"), await count("reset")]).toEqual([3, 2]);
});

test("who has no verified account can't use up the mails of all, and the log tells when they have used up their part", async ({
  budgets,
}) => {
  const { mayMail } = budgets.open({ perMailbox: 0, perNetwork: 0, inAll: 5 });
  const granted: boolean[] = [];
  for (let i = 0; i < 6; i++) granted.push(await mayMail(`${i}@example.com`, "verification"));
  expect(granted).toEqual([true, true, true, true, false, false]);
  expect(budgets.logLines).toHaveLength(1);
  expect(await mayMail("ann@example.com", "reset")).toBe(true);
  expect(await mayMail("ann@example.com", "reset")).toBe(false);
});

test("a mailbox that gets no more uses up nobody else's", async ({ budgets }) => {
  const { mayMail } = budgets.open({ perMailbox: 1, perNetwork: 0, inAll: 5 });
  for (let i = 0; i < 20; i++) await mayMail("ann@example.com", "verification");
  for (const name of ["bob@example.com", "eve@example.com"]) expect(await mayMail(name, "verification")).toBe(true);
});

test("0 is no limit, and so is a client whose address isn't known", async ({ budgets }) => {
  const unlimited = budgets.open({ perMailbox: 0, perNetwork: 0, inAll: 0 });
  for (let i = 0; i < 20; i++) {
    await unlimited.countRequest("192.0.2.1");
    expect(await unlimited.mayMail("ann@example.com", "verification")).toBe(true);
  }
  const { countRequest } = budgets.open({ perMailbox: 0, perNetwork: 1, inAll: 0 });
  for (let i = 0; i < 3; i++) await countRequest(undefined);
});
