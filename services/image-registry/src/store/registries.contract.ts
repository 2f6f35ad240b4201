import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createRegistry, event, imageOf, quotas, record, registryOf, subjectsOf, unlimited } from "./store.fixture.ts";
import type { ImageRegistryStore } from "./store.ts";

/** What every adapter of `Registries` does. `open` returns an empty store. */
export function describeRegistries(open: () => Promise<ImageRegistryStore>): void {
  describe("registries", () => {
    let store: ImageRegistryStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const addRegistry = (name: string) => store.registries.create(registryOf({ name }), quotas, [], undefined);

    test("each change of a registry has its event in the outbox, and one that is refused has none", async () => {
      const registry = registryOf();
      await store.registries.create(registry, unlimited, [event("created")], undefined);
      await store.registries.create(registryOf(), unlimited, [event("refused")], undefined);
      await store.registries.update({ ...registry, username: "bob" }, [event("updated")]);
      await store.registries.update({ ...registry, username: "eve" }, [event("refused")]);
      await store.registries.delete(registry.id, 1, [event("refused")]);
      await store.registries.delete(registry.id, 2, [event("deleted")]);
      expect(await subjectsOf(store)).toEqual(["created", "updated", "deleted"]);
    });

    test("the names of registries are unique in their workspace", async () => {
      const first = await createRegistry(store);
      expect(await store.registries.create(registryOf(), unlimited, [], undefined)).toBe("name_taken");
      await createRegistry(store, { workspaceId: "w2" });
      const second = await createRegistry(store, { name: "second" });
      expect(await store.registries.update({ ...second, name: "private" }, [])).toBe("name_taken");
      expect(await store.registries.update({ ...first, username: "bob" }, [])).toBe("done");
      expect(await store.registries.find(first.id, "w1")).toEqual({ ...first, username: "bob", version: 2 });
      expect(await store.registries.update({ ...first, username: "eve" }, [])).toBe("stale");
      expect(await store.registries.find(first.id, "w2")).toBeUndefined();
    });

    test("a registry that was refused keeps no answer for its Idempotency-Key", async () => {
      const first = await createRegistry(store);
      expect(await store.registries.create(registryOf(), unlimited, [], record)).toBe("name_taken");
      expect(await store.registries.delete(first.id, 1, [])).toBe("done");
      expect(await store.registries.create(registryOf(), unlimited, [], record)).toBe("done");
      await expect(
        store.registries.create(registryOf({ name: "another" }), unlimited, [], record),
      ).rejects.toMatchObject({
        name: "IdempotencyRecordExists",
      });
    });

    test("a registry that an image uses can't be deleted, and keeps its host", async () => {
      const registry = await createRegistry(store);
      const image = imageOf({ registryId: registry.id });
      await store.images.create(image, registry, unlimited, [], undefined);
      expect(await store.registries.delete(registry.id, 1, [])).toBe("in_use");
      expect(await store.registries.update({ ...registry, url: "quay.io", host: "quay.io" }, [])).toBe("in_use");
      expect(await store.registries.update({ ...registry, url: "ghcr.io" }, [])).toBe("done");
      await store.images.delete(image.id, 1, []);
      expect(await store.registries.delete(registry.id, 1, [])).toBe("stale");
      expect(await store.registries.delete(registry.id, 2, [])).toBe("done");
    });

    test("a workspace has no more registries than it may, and a deletion frees a place at once", async () => {
      const first = await createRegistry(store, { name: "first" });
      expect(await addRegistry("second")).toBe("done");
      expect(await store.registries.create(registryOf({ name: "third" }), quotas, [], record)).toBe("too_many");
      expect(await addRegistry("second")).toBe("name_taken");
      await store.registries.delete(first.id, 1, []);
      expect(await store.registries.create(registryOf({ name: "third" }), quotas, [], record)).toBe("done");
      expect(await addRegistry("fourth")).toBe("too_many");
    });
  });
}
