import { expect, test } from "vitest";
import { type AccountState, decideCreateWorkspace, decideTakeOver, mayCreatePersonalWorkspace } from "./accounts.ts";

const account: AccountState = { deleted: false, hadPersonalWorkspace: false, owned: 2 };
const quotas = { maxOwned: 2, maxMembers: 0 };

test("a quota of workspaces is reached by as many, and 0 is none", () => {
  expect(decideTakeOver(account, quotas)).toBe("owns_too_many");
  expect(decideTakeOver({ ...account, owned: 1 }, quotas)).toBe("done");
  expect(decideTakeOver({ ...account, owned: 0 }, { ...quotas, maxOwned: 0 })).toBe("done");
});

test("a deleted account creates nothing, whatever its quota", () => {
  expect(decideCreateWorkspace({ ...account, deleted: true }, quotas)).toBe("account_deleted");
  expect(decideCreateWorkspace(account, quotas)).toBe("owns_too_many");
  expect(decideCreateWorkspace({ ...account, owned: 1 }, quotas)).toBe("done");
});

test("a personal workspace is created once, whatever the quota", () => {
  expect(mayCreatePersonalWorkspace(account)).toBe(true);
  expect(mayCreatePersonalWorkspace({ ...account, hadPersonalWorkspace: true })).toBe(false);
  expect(mayCreatePersonalWorkspace({ ...account, deleted: true })).toBe(false);
});
