import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ImageRecord } from "../domain/images.ts";
import {
  at,
  createImage,
  createRegistry,
  event,
  imageOf,
  quotas,
  record,
  subjectsOf,
  unlimited,
} from "./store.fixture.ts";
import type { ImageRegistryStore } from "./store.ts";

/** What every adapter of `Images` does. `open` returns an empty store. */
export function describeImages(open: () => Promise<ImageRegistryStore>): void {
  describe("images", () => {
    let store: ImageRegistryStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const addImage = (fields?: Partial<ImageRecord>) =>
      store.images.create(imageOf(fields), undefined, quotas, [event("created")], undefined);

    test("an image is stored as given, and its event is in the outbox", async () => {
      const registry = await createRegistry(store);
      const bare = imageOf();
      const full = imageOf({
        description: "for builds",
        enabled: false,
        readinessPort: 8080,
        ttlSeconds: 60,
        registryId: registry.id,
        updatedAt: at(7),
      });
      await store.images.create(bare, undefined, unlimited, [event("created")], undefined);
      await store.images.create(full, registry, unlimited, [event("created")], undefined);
      expect(await store.images.find(bare.id, "w1")).toEqual({ ...bare, registryName: undefined });
      expect(await store.images.find(full.id, "w1")).toEqual({ ...full, registryName: "private" });
      expect(await subjectsOf(store)).toEqual(["created", "created"]);
    });

    test("a workspace sees its own images and the defaults", async () => {
      const own = await createImage(store, { createdAt: at(1) });
      const other = await createImage(store, { workspaceId: "w2", createdAt: at(2) });
      const shared = await createImage(store, { workspaceId: "", enabled: false, createdAt: at(3) });
      const list = async (enabledOnly: boolean) =>
        (await store.images.list({ workspaceId: "w1", enabledOnly }, undefined, 10)).map(({ id }) => id);
      expect(await list(false)).toEqual([shared.id, own.id]);
      expect(await list(true)).toEqual([own.id]);
      expect(await store.images.count({ workspaceId: "w1", enabledOnly: false })).toBe(2);
      expect(await store.images.count({ workspaceId: "w1", enabledOnly: true })).toBe(1);
      expect(await store.images.find(other.id, "w1")).toBeUndefined();
      expect(await store.images.find(shared.id, "w1")).toBeDefined();
    });

    test("an image is found by its name, a workspace's own before a default", async () => {
      const shared = await createImage(store, { workspaceId: "", name: "python" });
      await createImage(store, { workspaceId: "w2", name: "python" });
      const find = async (name: string) => (await store.images.findByName(name, "w1")).map(({ id }) => id).sort();
      expect(await find("python")).toEqual([shared.id]);
      const registry = await createRegistry(store);
      const own = await createImage(store, { name: "python", registryId: registry.id });
      expect(await store.images.findByName("python", "w1")).toEqual([{ ...own, registryName: "private" }]);
      const second = await createImage(store, { name: "python" });
      expect(await find("python")).toEqual([own.id, second.id].sort());
      await createImage(store, { name: "python" });
      expect(await find("python")).toHaveLength(2);
      expect(await find("Python")).toEqual([]);
    });

    test("a change of an image commits on the version it was decided on, and only once", async () => {
      const image = await createImage(store);
      expect(
        await store.images.update({ ...image, name: "other", ttlSeconds: 90 }, undefined, [event("updated")]),
      ).toBe("done");
      expect(await store.images.update({ ...image, name: "late" }, undefined, [event("updated")])).toBe("stale");
      expect(await store.images.find(image.id, "w1")).toMatchObject({ name: "other", ttlSeconds: 90, version: 2 });
      expect(await store.images.delete(image.id, 1, [event("deleted")])).toBe("stale");
      expect(await store.images.delete(image.id, 2, [event("deleted")])).toBe("done");
      expect(await store.images.find(image.id, "w1")).toBeUndefined();
      expect(await subjectsOf(store)).toEqual(["updated", "deleted"]);
    });

    test("an image commits only with the registry that it was checked against", async () => {
      const registry = await createRegistry(store);
      await store.registries.update({ ...registry, url: "https://quay.io", host: "quay.io" }, []);
      expect(await store.images.create(imageOf({ registryId: registry.id }), registry, unlimited, [], undefined)).toBe(
        "stale",
      );
      const image = await createImage(store);
      expect(await store.images.update({ ...image, registryId: registry.id }, registry, [])).toBe("stale");
      expect(await store.images.update({ ...image, registryId: registry.id }, { ...registry, version: 2 }, [])).toBe(
        "done",
      );
    });

    test("the default image is created once, and not again", async () => {
      await store.images.createDefault(imageOf({ workspaceId: "" }), [event("created")]);
      await store.images.createDefault(imageOf({ workspaceId: "", name: "another" }), [event("created")]);
      const images = await store.images.list({ workspaceId: "w9", enabledOnly: true }, undefined, 10);
      expect(images.map(({ name }) => name)).toEqual(["tool"]);
      expect(await subjectsOf(store)).toEqual(["created"]);
    });

    test("a default image is found by its name without a workspace, and changed", async () => {
      await createImage(store);
      const image = await createImage(store, { workspaceId: "" });
      expect(await store.images.findByName("tool", "")).toEqual([{ ...image, registryName: undefined }]);
      const changed = { ...image, image: "localhost/tool:2", tag: "2", readinessPort: 80 };
      expect(await store.images.update(changed, undefined, [event("updated")])).toBe("done");
      expect(await store.images.findByName("tool", "")).toEqual([{ ...changed, version: 2, registryName: undefined }]);
      expect(await subjectsOf(store)).toEqual(["updated"]);
    });

    test("a workspace has no more images than it may, and a deletion frees a place at once", async () => {
      const first = await createImage(store);
      expect(await addImage()).toBe("done");
      const refused = imageOf();
      expect(await store.images.create(refused, undefined, quotas, [event("refused")], record)).toBe("too_many");
      expect(await store.images.find(refused.id, "w1")).toBeUndefined();
      expect(await subjectsOf(store)).toEqual(["created"]);
      expect(await addImage({ workspaceId: "w2" })).toBe("done");
      for (const _ of [1, 2, 3]) expect(await addImage({ workspaceId: "" })).toBe("done");
      await store.images.delete(first.id, 1, []);
      expect(await store.images.create(refused, undefined, quotas, [], record)).toBe("done");
      expect(await addImage()).toBe("too_many");
    });
  });
}
