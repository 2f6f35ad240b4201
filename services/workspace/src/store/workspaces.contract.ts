import { newId } from "@sandgate/kit/base/ids";
import { Role } from "@sandgate/proto/common/v1/access";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  at,
  change,
  createWorkspace,
  deletionAt,
  event,
  memberAt,
  quotas,
  subjectsOf,
  unlimited,
  workspaceAt,
} from "./store.fixture.ts";
import type { WorkspaceStore } from "./store.ts";

/** What every adapter of `Workspaces` does. `open` returns an empty store. */
export function describeWorkspaces(open: () => Promise<WorkspaceStore>): void {
  describe("workspaces", () => {
    let store: WorkspaceStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const create = (ms: number, ownerId = "ann") =>
      store.workspaces.create(workspaceAt(ms), ownerId, quotas, [], undefined);

    test("a new workspace has its creator as its owner, and its event is in the outbox", async () => {
      const workspace = workspaceAt(0);
      expect(await store.workspaces.create(workspace, "ann", unlimited, [event("created")], undefined)).toBe("done");
      expect(await store.workspaces.find(workspace.id, "ann")).toEqual({ ...workspace, role: Role.OWNER });
      expect(await store.workspaces.find(workspace.id, "bob")).toEqual({ ...workspace, role: Role.UNSPECIFIED });
      expect(await subjectsOf(store)).toEqual(["created"]);
    });

    test("a personal workspace is created once, however many ask, and not again when it is deleted", async () => {
      expect(await store.accounts.hadPersonalWorkspace("ann")).toBe(false);
      await Promise.all(
        [0, 1, 2].map((ms) => store.workspaces.createPersonal(workspaceAt(ms), "ann", [event("created")])),
      );
      const [personal, ...others] = await store.workspaces.list("ann", undefined, 10);
      expect(others).toEqual([]);
      expect(await subjectsOf(store)).toEqual(["created"]);
      await store.workspaces.delete(change(personal?.id ?? "", 1), deletionAt(5, 6));
      await store.workspaces.createPersonal(workspaceAt(7), "ann", []);
      expect(await store.workspaces.list("ann", undefined, 10)).toEqual([]);
      expect(await store.accounts.hadPersonalWorkspace("ann")).toBe(true);
    });

    test("the default workspace is the oldest that the user owns and counts for, whatever others make of them", async () => {
      const joined = await createWorkspace(store, 0, "bob");
      await store.members.add(change(joined.id, 1), memberAt(1, "ann", Role.OWNER), unlimited, undefined);
      expect(await store.workspaces.findDefault("ann")).toBeUndefined();
      const [older, newer] = [workspaceAt(2), workspaceAt(3)];
      for (const each of [newer, older]) await store.workspaces.create(each, "ann", unlimited, [], undefined);
      expect(await store.workspaces.findDefault("ann")).toBe(older.id);
      expect(await store.workspaces.findDefault("bob")).toBe(joined.id);
      // A quota owner who has become a member.
      await store.members.changeRole(change(older.id, 1), "ann", Role.MEMBER);
      expect(await store.workspaces.findDefault("ann")).toBe(newer.id);
    });

    test("workspaces are found by many ids, repeated and unknown ones included", async () => {
      const { id } = await createWorkspace(store);
      const found = await store.workspaces.findMany([id, newId(), id], "ann");
      expect(found).toMatchObject([{ id, role: Role.OWNER }]);
      expect(await store.workspaces.findMany([], "ann")).toEqual([]);
    });

    test("a user owns no more workspaces than they may, and a deletion frees a place at once", async () => {
      const first = await createWorkspace(store);
      expect(await create(1)).toBe("done");
      const refused = workspaceAt(2);
      const record = { id: "record", sealed: new Uint8Array([1]), service: "workspace", workspace: "", owner: "ann" };
      expect(await store.workspaces.create(refused, "ann", quotas, [event("created")], record)).toBe("owns_too_many");
      expect(await store.workspaces.find(refused.id, "ann")).toBeUndefined();
      expect(await subjectsOf(store)).toEqual([]);
      expect(await create(2, "bob")).toBe("done");
      await store.workspaces.delete(change(first.id, 1), deletionAt(3, 4));
      expect(await store.workspaces.create(refused, "ann", quotas, [], record)).toBe("done");
      expect(await create(5)).toBe("owns_too_many");
    });

    test("of many workspaces that are created at once for the last place, one is", async () => {
      await createWorkspace(store);
      const outcomes = await Promise.all([1, 2, 3, 4, 5].map((ms) => create(ms)));
      expect(outcomes.filter((outcome) => outcome === "done")).toHaveLength(1);
      expect(outcomes.filter((outcome) => outcome === "owns_too_many")).toHaveLength(4);
      expect(await store.workspaces.list("ann", undefined, 10)).toHaveLength(2);
    });

    test("the personal workspace counts, but is made even when the user owns all they may", async () => {
      await create(1);
      await create(2);
      await store.workspaces.createPersonal(workspaceAt(3), "ann", []);
      const [personal, other] = await store.workspaces.list("ann", undefined, 10);
      expect(personal?.createdAt).toEqual(at(3));
      await store.workspaces.delete(change(other?.id ?? "", 1), deletionAt(4, 5));
      expect(await create(6)).toBe("owns_too_many");
    });
  });
}
