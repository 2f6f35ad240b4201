import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { at, createImage, createRegistry, event, imageOf, registryOf, subjectsOf, unlimited } from "./store.fixture.ts";
import type { ImageRegistryStore } from "./store.ts";

/** What every adapter of `Purges` does. `open` returns an empty store. */
export function describePurges(open: () => Promise<ImageRegistryStore>): void {
  describe("purges", () => {
    let store: ImageRegistryStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("a deleted workspace accepts nothing new and is purged in batches", async () => {
      for (const name of ["a", "b", "c"]) {
        await createImage(store, { name });
        await createRegistry(store, { name });
      }
      const other = await createImage(store, { workspaceId: "w2" });
      await store.purges.beginPurge("w1", at(1));
      expect(await store.images.create(imageOf(), undefined, unlimited, [event("created")], undefined)).toBe(
        "workspace_deleted",
      );
      expect(await store.registries.create(registryOf(), unlimited, [], undefined)).toBe("workspace_deleted");
      expect(await store.purges.listOpenPurges()).toEqual(["w1"]);
      expect(await store.purges.listWorkspaces({ limit: 10 })).toEqual(["w2"]);

      expect(await store.purges.deleteBatch("w1", 2)).toBe(false);
      expect(await store.registries.list("w1", undefined, 10)).toHaveLength(1);
      expect(await store.purges.deleteBatch("w1", 2)).toBe(false);
      expect(await store.purges.deleteBatch("w1", 2)).toBe(true);
      await store.purges.completePurge("w1", at(2), [event("purged")]);
      await store.purges.completePurge("w1", at(2), [event("purged again")]);
      expect(await store.purges.listOpenPurges()).toEqual([]);
      expect(await store.images.find(other.id, "w2")).toBeDefined();
      expect(await store.images.create(imageOf(), undefined, unlimited, [], undefined)).toBe("workspace_deleted");
      expect(await subjectsOf(store)).toEqual(["purged"]);
    });

    test("a purge that is opened again is completed again", async () => {
      for (const ms of [1, 3]) {
        await store.purges.beginPurge("w1", at(ms));
        expect(await store.purges.listOpenPurges()).toEqual(["w1"]);
        await store.purges.completePurge("w1", at(ms + 1), [event(`purged ${ms}`)]);
        expect(await store.purges.listOpenPurges()).toEqual([]);
      }
      expect(await subjectsOf(store)).toEqual(["purged 1", "purged 3"]);
    });

    test("workspaces are listed page by page", async () => {
      for (const workspaceId of ["w3", "w1", "w2"]) await createImage(store, { workspaceId });
      expect(await store.purges.listWorkspaces({ limit: 2 })).toEqual(["w1", "w2"]);
      expect(await store.purges.listWorkspaces({ limit: 2, afterId: "w2" })).toEqual(["w3"]);
    });
  });
}
