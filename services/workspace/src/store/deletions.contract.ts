import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { at, change, createWorkspace, deletionAt, event, memberAt, subjectsOf, unlimited } from "./store.fixture.ts";
import type { WorkspaceStore } from "./store.ts";

/** What every adapter of `Deletions` does. `open` returns an empty store. */
export function describeDeletions(open: () => Promise<WorkspaceStore>): void {
  describe("deletions", () => {
    let store: WorkspaceStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("a deleted workspace is gone with its members, and its deletion completes with the last purge", async () => {
      const { id } = await createWorkspace(store);
      await store.members.add(change(id, 1), memberAt(1, "bob"), unlimited, undefined);
      const services = ["image-registry", "sandbox"];
      expect(await store.workspaces.delete(change(id, 2, [event("deleted")]), deletionAt(5, 60_000, services))).toBe(
        "done",
      );
      expect(await store.workspaces.find(id, "ann")).toBeUndefined();
      expect(await store.workspaces.list("bob", undefined, 10)).toEqual([]);
      expect(await store.members.list(id, undefined, 10)).toEqual([]);
      expect(await store.deletions.findOldestOpen()).toEqual(at(5));

      await store.deletions.recordPurge(id, "sandbox", at(10));
      await store.deletions.recordPurge(id, "sandbox", at(11));
      await store.deletions.recordPurge(id, "another", at(12));
      expect(await store.deletions.listDue(at(60_000), 10)).toEqual([
        { workspaceId: id, deletedAt: at(5), announcements: 1, version: 3 },
      ]);
      await store.deletions.recordPurge(id, "image-registry", at(20));
      expect(await store.deletions.listDue(at(60_000), 10)).toEqual([]);
      expect(await store.deletions.findOldestOpen()).toBeUndefined();
    });

    test("a complete deletion is forgotten when it is old enough, an open one never", async () => {
      const ids: string[] = [];
      for (const completed of [10, 20, undefined]) {
        const { id } = await createWorkspace(store);
        ids.push(id);
        await store.workspaces.delete(change(id, 1), deletionAt(0, 60_000, ["sandbox"]));
        if (completed) await store.deletions.recordPurge(id, "sandbox", at(completed));
      }
      expect(await store.deletions.deleteCompletedBefore(at(10), 10)).toBe(0);
      expect(await store.deletions.deleteCompletedBefore(at(20), 10)).toBe(1);
      expect(await store.deletions.deleteCompletedBefore(at(1_000), 1)).toBe(1);
      expect(await store.deletions.deleteCompletedBefore(at(1_000), 1)).toBe(0);
      expect(await store.deletions.listDue(at(60_000), 10)).toMatchObject([{ workspaceId: ids[2] }]);
    });

    test("an open deletion is announced again when it is due, by only one of those who try", async () => {
      const { id } = await createWorkspace(store);
      await store.workspaces.delete(change(id, 1), deletionAt(0, 60_000, ["sandbox"]));
      expect(await store.deletions.listDue(at(59_999), 10)).toEqual([]);
      expect(await store.deletions.listDue(at(60_000), 10)).toMatchObject([{ workspaceId: id, announcements: 1 }]);
      const outcomes = await Promise.all([
        store.deletions.announce(change(id, 2, [event("again")]), at(180_000)),
        store.deletions.announce(change(id, 2, [event("again")]), at(180_000)),
      ]);
      expect(outcomes.sort()).toEqual(["done", "stale"]);
      expect(await subjectsOf(store)).toEqual(["again"]);
      expect(await store.deletions.listDue(at(60_000), 10)).toEqual([]);
      await store.deletions.recordPurge(id, "sandbox", at(200_000));
      expect(await store.deletions.listDue(at(300_000), 10)).toEqual([]);
      expect(await store.deletions.announce(change(id, 3, [event("late")]), at(400_000))).toBe("stale");
    });
  });
}
