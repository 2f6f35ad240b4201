import { newId } from "@sandgate/kit/base/ids";
import { Role } from "@sandgate/proto/common/v1/access";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  change,
  createWorkspace,
  deletionAt,
  event,
  memberAt,
  quotas,
  subjectsOf,
  takeOver,
  unlimited,
  workspaceAt,
} from "./store.fixture.ts";
import type { WorkspaceStore } from "./store.ts";

/** What every adapter of `Members` does. `open` returns an empty store. */
export function describeMembers(open: () => Promise<WorkspaceStore>): void {
  describe("members", () => {
    let store: WorkspaceStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const create = (ms: number, ownerId = "ann") =>
      store.workspaces.create(workspaceAt(ms), ownerId, quotas, [], undefined);

    const quotaOwnerOf = async (id: string) => (await store.workspaces.findQuotaOwners([id, id]))[0];

    test("of two owners who leave at the same time one commits", async () => {
      const { id } = await createWorkspace(store);
      await store.members.add(change(id, 1), memberAt(1, "bob", Role.OWNER), unlimited, undefined);
      const outcomes = await Promise.all(["ann", "bob"].map((userId) => store.members.remove(change(id, 2), userId)));
      expect(outcomes.sort()).toEqual(["done", "stale"]);
    });

    test("members are added, changed and removed", async () => {
      const { id } = await createWorkspace(store);
      await store.members.add(change(id, 1, [event("added")]), memberAt(1, "bob"), unlimited, undefined);
      expect(await store.members.find(id, "bob", "ann")).toMatchObject({
        workspace: { id, role: Role.OWNER, version: 2 },
        member: memberAt(1, "bob"),
        owners: 1,
      });
      await store.members.changeRole(change(id, 2), "bob", Role.OWNER);
      expect(await store.members.find(id, "bob", "bob")).toMatchObject({ member: { role: Role.OWNER }, owners: 2 });
      await store.members.remove(change(id, 3, [event("removed")]), "bob");
      expect(await store.members.find(id, "bob", "ann")).toMatchObject({ member: undefined, owners: 1 });
      expect(await store.members.find(newId(), "bob", "ann")).toBeUndefined();
      expect(await subjectsOf(store)).toEqual(["added", "removed"]);
    });

    test("what others make a user the owner of takes no place of theirs, until they take it over", async () => {
      const { id } = await createWorkspace(store, 0, "bob");
      await create(1);
      const own = await createWorkspace(store, 2);
      expect(await store.members.add(change(id, 1), memberAt(3, "ann", Role.OWNER), quotas, undefined)).toBe("done");
      const other = await createWorkspace(store, 0, "bob");
      await store.members.add(change(other.id, 1), memberAt(3, "ann"), quotas, undefined);
      expect(await store.members.changeRole(change(other.id, 2), "ann", Role.OWNER)).toBe("done");
      expect(await quotaOwnerOf(id)).toEqual({ workspaceId: id, userId: "bob", since: 1, abandoned: false });

      expect(
        await store.members.changeRole(change(id, 2, [event("taken over")], takeOver("ann")), "ann", Role.OWNER),
      ).toBe("owns_too_many");
      expect(
        await store.members.remove(change(id, 2, [event("taken over"), event("removed")], takeOver("ann")), "bob"),
      ).toBe("owns_too_many");
      expect(await quotaOwnerOf(id)).toMatchObject({ userId: "bob" });
      expect(await subjectsOf(store)).toEqual([]);
      await store.workspaces.delete(change(own.id, 1), deletionAt(4, 5));
      expect(
        await store.members.changeRole(change(id, 2, [event("taken over")], takeOver("ann")), "ann", Role.OWNER),
      ).toBe("done");
      expect(await quotaOwnerOf(id)).toEqual({ workspaceId: id, userId: "ann", since: 3, abandoned: false });
      expect(await subjectsOf(store)).toEqual(["taken over"]);
      expect(await create(6)).toBe("owns_too_many");
      expect(await create(6, "bob")).toBe("done");
    });

    test("a workspace that a user leaves keeps its place until another owner takes it over", async () => {
      const { id } = await createWorkspace(store);
      await create(1);
      await store.members.add(change(id, 1), memberAt(2, "bob", Role.OWNER), quotas, undefined);
      await store.members.remove(change(id, 2), "ann");
      expect(await quotaOwnerOf(id)).toEqual({ workspaceId: id, userId: "ann", since: 1, abandoned: true });
      expect(await create(3)).toBe("owns_too_many");
      await store.members.changeRole(change(id, 3, [], takeOver("bob")), "bob", Role.OWNER);
      expect(await quotaOwnerOf(id)).toEqual({ workspaceId: id, userId: "bob", since: 4, abandoned: false });
      expect(await create(4)).toBe("done");
    });

    test("of creations and takings over at the same time, one gets the last place", async () => {
      await createWorkspace(store);
      const given = await Promise.all([1, 2, 3, 4].map((ms) => createWorkspace(store, ms, "bob")));
      for (const { id } of given)
        await store.members.add(change(id, 1), memberAt(5, "ann", Role.OWNER), unlimited, undefined);
      const outcomes = await Promise.all([
        ...given.map(({ id }) => store.members.changeRole(change(id, 2, [], takeOver("ann")), "ann", Role.OWNER)),
        create(6),
      ]);
      expect(outcomes.sort()).toEqual(["done", ...outcomes.slice(1).map(() => "owns_too_many")]);
    });

    test("a taking over commits on the version it was decided on, with the change it comes with", async () => {
      const { id } = await createWorkspace(store);
      await store.members.add(change(id, 1), memberAt(1, "bob", Role.OWNER), unlimited, undefined);
      expect(
        await store.members.remove(change(id, 1, [event("taken over"), event("removed")], takeOver("bob")), "ann"),
      ).toBe("stale");
      expect(await quotaOwnerOf(id)).toMatchObject({ userId: "ann" });
      expect(
        await store.members.remove(change(id, 2, [event("taken over"), event("removed")], takeOver("bob")), "ann"),
      ).toBe("done");
      expect(await store.members.find(id, "ann", "bob")).toMatchObject({
        member: undefined,
        quotaOwner: { userId: "bob", since: 3 },
      });
      expect((await subjectsOf(store)).sort()).toEqual(["removed", "taken over"]);
      expect(await store.workspaces.findQuotaOwners([newId()])).toEqual([]);
    });

    test("a workspace has no more members than it may, also when several are added at once", async () => {
      const { id } = await createWorkspace(store);
      const add = (userId: string, version: number) =>
        store.members.add(change(id, version), memberAt(1, userId), quotas, undefined);
      const outcomes = await Promise.all(["bob", "carl", "dora"].map((userId) => add(userId, 1)));
      expect(outcomes.filter((outcome) => outcome === "done")).toHaveLength(1);
      const members = await store.members.list(id, undefined, 10);
      expect(members).toHaveLength(2);
      expect(await add("eve", 2)).toBe("too_many_members");
      const joined = members.find(({ userId }) => userId !== "ann")?.userId ?? "";
      await store.members.remove(change(id, 2), joined);
      expect(await add("eve", 3)).toBe("done");
    });
  });
}
