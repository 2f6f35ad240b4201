import { newId } from "@sandgate/kit/base/ids";
import { Role } from "@sandgate/proto/common/v1/access";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { WorkspacePosition, WorkspaceView } from "../domain/workspaces.ts";
import { describeAccounts } from "./accounts.contract.ts";
import { describeDeletions } from "./deletions.contract.ts";
import { describeMembers } from "./members.contract.ts";
import { at, change, createWorkspace, deletionAt, event, memberAt, subjectsOf, unlimited } from "./store.fixture.ts";
import type { WorkspaceStore } from "./store.ts";
import { describeWorkspaces } from "./workspaces.contract.ts";

/** What every store of workspaces does, whatever the database. `open` returns an empty one. */
export function describeWorkspaceStore(name: string, open: () => Promise<WorkspaceStore>): void {
  describe(`workspace store on ${name}`, () => {
    describeWorkspaces(open);
    describeMembers(open);
    describeAccounts(open);
    describeDeletions(open);

    let store: WorkspaceStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("a user's workspaces begin with those that the user owns, then come those they administer", async () => {
      const of = async (owner: string, ms: number, role: Role) => {
        const { id } = await createWorkspace(store, ms, owner);
        if (owner !== "ann") await store.members.add(change(id, 1), memberAt(9, "ann", role), unlimited, undefined);
        return id;
      };
      const owned = [await of("ann", 1, Role.OWNER), await of("ann", 4, Role.OWNER), await of("bob", 2, Role.OWNER)];
      const administered = [await of("bob", 6, Role.ADMIN), await of("eve", 3, Role.ADMIN)];
      const joined = [await of("eve", 8, Role.MEMBER), await of("eve", 5, Role.MEMBER)];
      const [first, second, third] = owned;
      const ordered = [second, third, first, ...administered, ...joined];
      const seen: string[] = [];
      for (let last: WorkspaceView | undefined; ; ) {
        const page = await store.workspaces.list("ann", last, 2);
        seen.push(...page.map(({ id }) => id));
        last = page.at(-1);
        if (!last) break;
        // Those that come meanwhile are before the rest of the list.
        if (seen.length === 2) await of("ann", 10, Role.OWNER);
      }
      expect(seen).toEqual(ordered);
    });

    test("lists continue after a cursor, newest first, ties by id", async () => {
      const older = await createWorkspace(store, 1);
      const [low, high] = [await createWorkspace(store, 2), await createWorkspace(store, 2)].sort((a, b) =>
        a.id < b.id ? -1 : 1,
      );
      await createWorkspace(store, 3, "bob");
      const ids = async (after?: WorkspacePosition) =>
        (await store.workspaces.list("ann", after, 2)).map(({ id }) => id);
      expect(await ids()).toEqual([high?.id, low?.id]);
      expect(await ids({ role: Role.OWNER, createdAt: at(2), id: high?.id ?? "" })).toEqual([low?.id, older.id]);

      await store.members.add(change(older.id, 1), memberAt(9, "bob"), unlimited, undefined);
      await store.members.add(change(older.id, 2), memberAt(9, "carl"), unlimited, undefined);
      const members = await store.members.list(older.id, undefined, 2);
      expect(members.map(({ userId }) => userId)).toEqual(["carl", "bob"]);
      const rest = await store.members.list(older.id, { createdAt: at(9), id: "bob" }, 2);
      expect(rest).toEqual([memberAt(1, "ann", Role.OWNER)]);
    });

    test("a change commits on the version it was decided on, and only once", async () => {
      const { id } = await createWorkspace(store);
      expect(await store.workspaces.rename(change(id, 1), "Office", at(4))).toBe("done");
      expect(await store.workspaces.find(id, "ann")).toMatchObject({ name: "Office", updatedAt: at(4), version: 2 });
      const stale = [
        await store.workspaces.rename(change(id, 1, [event("updated")]), "Shed", at(5)),
        await store.members.add(change(id, 1, [event("added")]), memberAt(5, "bob"), unlimited, undefined),
        await store.members.changeRole(change(id, 1, [event("updated")]), "ann", Role.MEMBER),
        await store.members.remove(change(id, 1, [event("removed")]), "ann"),
        await store.workspaces.delete(change(id, 1, [event("deleted")]), deletionAt(5, 6, ["sandbox"])),
        await store.workspaces.rename(change(newId(), 1), "Nowhere", at(5)),
      ];
      expect(new Set(stale)).toEqual(new Set(["stale"]));
      expect(await store.workspaces.find(id, "ann")).toMatchObject({ name: "Office", role: Role.OWNER, version: 2 });
      expect(await subjectsOf(store)).toEqual([]);
      expect(await store.deletions.findOldestOpen()).toBeUndefined();
    });

    test("a new name and a new role have their events in the outbox", async () => {
      const { id } = await createWorkspace(store);
      await store.workspaces.rename(change(id, 1, [event("renamed")]), "Office", at(4));
      await store.members.changeRole(change(id, 2, [event("role")]), "ann", Role.OWNER);
      expect(await subjectsOf(store)).toEqual(["renamed", "role"]);
    });
  });
}
