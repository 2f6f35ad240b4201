import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { at, change, createWorkspace, event, memberAt, subjectsOf, unlimited, workspaceAt } from "./store.fixture.ts";
import type { WorkspaceStore } from "./store.ts";

/** What every adapter of `Accounts` does. `open` returns an empty store. */
export function describeAccounts(open: () => Promise<WorkspaceStore>): void {
  describe("accounts", () => {
    let store: WorkspaceStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("nothing is created for a user whose account is deleted", async () => {
      const { id } = await createWorkspace(store);
      await store.accounts.markDeleted("bob", at(1));
      await store.accounts.markDeleted("bob", at(2));
      expect(await store.workspaces.create(workspaceAt(3), "bob", unlimited, [event("created")], undefined)).toBe(
        "account_deleted",
      );
      expect(await store.members.add(change(id, 1, [event("added")]), memberAt(3, "bob"), unlimited, undefined)).toBe(
        "account_deleted",
      );
      await store.workspaces.createPersonal(workspaceAt(3), "bob", [event("created")]);
      expect(await store.workspaces.list("bob", undefined, 10)).toEqual([]);
      expect(await subjectsOf(store)).toEqual([]);
    });

    test("a deleted account is forgotten when it is old enough, and no other", async () => {
      for (const userId of ["ann", "bob", "carl"]) {
        await store.workspaces.createPersonal(workspaceAt(0), userId, []);
      }
      await store.accounts.markDeleted("ann", at(1));
      await store.accounts.markDeleted("bob", at(2));
      expect(await store.accounts.forgetDeletedBefore(at(1), 10)).toBe(0);
      expect(await store.accounts.forgetDeletedBefore(at(2), 10)).toBe(1);
      const had = (userId: string) => store.accounts.hadPersonalWorkspace(userId);
      expect([await had("ann"), await had("bob"), await had("carl")]).toEqual([false, true, true]);
      const create = (userId: string) => store.workspaces.create(workspaceAt(3), userId, unlimited, [], undefined);
      expect([await create("bob"), await create("carl")]).toEqual(["account_deleted", "done"]);
    });
  });
}
