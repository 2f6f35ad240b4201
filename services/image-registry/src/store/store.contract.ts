import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ImageRecord, ImageRegistryStore, RegistryRecord } from "./store.ts";

const at = (ms: number) => new Date(Date.UTC(2026, 0, 1) + ms);
/** No limits. */
const uncapped = { maxImages: 0, maxRegistries: 0 };
const event = (name: string) => ({ id: newId(), subject: name, bytes: new Uint8Array() });

function imageOf(fields: Partial<ImageRecord> = {}): ImageRecord {
  return {
    id: newId(),
    workspaceId: "w1",
    name: "tool",
    image: "alpine",
    description: undefined,
    tag: "latest",
    enabled: true,
    memoryMb: 1024,
    readinessPort: undefined,
    ttlSeconds: undefined,
    registryId: undefined,
    createdAt: at(0),
    updatedAt: at(0),
    version: 1,
    ...fields,
  };
}

function registryOf(fields: Partial<RegistryRecord> = {}): RegistryRecord {
  return {
    id: newId(),
    workspaceId: "w1",
    name: "private",
    url: "https://ghcr.io",
    host: "ghcr.io",
    username: "ann",
    sealedPassword: new Uint8Array([1, 2, 3]),
    createdAt: at(0),
    updatedAt: at(0),
    version: 1,
    ...fields,
  };
}

/** What every store of images and registries does, whatever the database. `open` returns an empty one. */
export function describeImageRegistryStore(name: string, open: () => Promise<ImageRegistryStore>): void {
  describe(`image registry store on ${name}`, () => {
    let store: ImageRegistryStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const subjects = async () => (await store.outbox.unsent(100)).map(({ subject }) => subject);

    async function createImage(fields: Partial<ImageRecord> = {}): Promise<ImageRecord> {
      const image = imageOf(fields);
      expect(await store.createImage(image, undefined, uncapped, [], undefined)).toBe("done");
      return image;
    }

    async function createRegistry(fields: Partial<RegistryRecord> = {}): Promise<RegistryRecord> {
      const registry = registryOf(fields);
      expect(await store.createRegistry(registry, uncapped, [], undefined)).toBe("done");
      return registry;
    }

    test("an image is stored as given, and its event is in the outbox", async () => {
      const registry = await createRegistry();
      const bare = imageOf();
      const full = imageOf({
        description: "for builds",
        enabled: false,
        readinessPort: 8080,
        ttlSeconds: 60,
        registryId: registry.id,
        updatedAt: at(7),
      });
      await store.createImage(bare, undefined, uncapped, [event("created")], undefined);
      await store.createImage(full, registry, uncapped, [event("created")], undefined);
      expect(await store.findImage(bare.id, "w1")).toEqual({ ...bare, registryName: undefined });
      expect(await store.findImage(full.id, "w1")).toEqual({ ...full, registryName: "private" });
      expect(await subjects()).toEqual(["created", "created"]);
    });

    test("a workspace sees its own images and the defaults", async () => {
      const own = await createImage({ createdAt: at(1) });
      const other = await createImage({ workspaceId: "w2", createdAt: at(2) });
      const shared = await createImage({ workspaceId: "", enabled: false, createdAt: at(3) });
      const list = async (enabledOnly: boolean) =>
        (await store.listImages({ workspaceId: "w1", enabledOnly }, undefined, 10)).map(({ id }) => id);
      expect(await list(false)).toEqual([shared.id, own.id]);
      expect(await list(true)).toEqual([own.id]);
      expect(await store.countImages({ workspaceId: "w1", enabledOnly: false })).toBe(2);
      expect(await store.countImages({ workspaceId: "w1", enabledOnly: true })).toBe(1);
      expect(await store.findImage(other.id, "w1")).toBeUndefined();
      expect(await store.findImage(shared.id, "w1")).toBeDefined();
    });

    test("lists continue after a cursor, newest first, ties by id", async () => {
      const images = [await createImage({ createdAt: at(1) })];
      images.push(await createImage({ createdAt: at(2) }), await createImage({ createdAt: at(2) }));
      const expected = images.sort((a, b) => +b.createdAt - +a.createdAt || (a.id < b.id ? 1 : -1));
      const filter = { workspaceId: "w1", enabledOnly: false };
      const first = await store.listImages(filter, undefined, 2);
      const rest = await store.listImages(filter, first.at(-1), 2);
      expect([...first, ...rest].map(({ id }) => id)).toEqual(expected.map(({ id }) => id));

      const older = await createRegistry({ name: "a", createdAt: at(1) });
      const newer = await createRegistry({ name: "b", createdAt: at(2) });
      expect(await store.listRegistries("w1", undefined, 1)).toEqual([newer]);
      expect(await store.listRegistries("w1", newer, 9)).toEqual([older]);
      expect(await store.listRegistries("w2", undefined, 9)).toEqual([]);
    });

    test("a change of an image commits on the version it was decided on, and only once", async () => {
      const image = await createImage();
      expect(await store.updateImage({ ...image, name: "other", ttlSeconds: 90 }, undefined, [event("updated")])).toBe(
        "done",
      );
      expect(await store.updateImage({ ...image, name: "late" }, undefined, [event("updated")])).toBe("stale");
      expect(await store.findImage(image.id, "w1")).toMatchObject({ name: "other", ttlSeconds: 90, version: 2 });
      expect(await store.deleteImage(image.id, 1, [event("deleted")])).toBe("stale");
      expect(await store.deleteImage(image.id, 2, [event("deleted")])).toBe("done");
      expect(await store.findImage(image.id, "w1")).toBeUndefined();
      expect(await subjects()).toEqual(["updated", "deleted"]);
    });

    test("an image commits only with the registry that it was checked against", async () => {
      const registry = await createRegistry();
      await store.updateRegistry({ ...registry, url: "https://quay.io", host: "quay.io" }, []);
      expect(await store.createImage(imageOf({ registryId: registry.id }), registry, uncapped, [], undefined)).toBe(
        "stale",
      );
      const image = await createImage();
      expect(await store.updateImage({ ...image, registryId: registry.id }, registry, [])).toBe("stale");
      expect(await store.updateImage({ ...image, registryId: registry.id }, { ...registry, version: 2 }, [])).toBe(
        "done",
      );
    });

    test("each change of a registry has its event in the outbox, and one that is refused has none", async () => {
      const registry = registryOf();
      await store.createRegistry(registry, uncapped, [event("created")], undefined);
      await store.createRegistry(registryOf(), uncapped, [event("refused")], undefined);
      await store.updateRegistry({ ...registry, username: "bob" }, [event("updated")]);
      await store.updateRegistry({ ...registry, username: "eve" }, [event("refused")]);
      await store.deleteRegistry(registry.id, 1, [event("refused")]);
      await store.deleteRegistry(registry.id, 2, [event("deleted")]);
      expect(await subjects()).toEqual(["created", "updated", "deleted"]);
    });

    test("the names of registries are unique in their workspace", async () => {
      const first = await createRegistry();
      expect(await store.createRegistry(registryOf(), uncapped, [], undefined)).toBe("name_taken");
      await createRegistry({ workspaceId: "w2" });
      const second = await createRegistry({ name: "second" });
      expect(await store.updateRegistry({ ...second, name: "private" }, [])).toBe("name_taken");
      expect(await store.updateRegistry({ ...first, username: "bob" }, [])).toBe("done");
      expect(await store.findRegistry(first.id, "w1")).toEqual({ ...first, username: "bob", version: 2 });
      expect(await store.updateRegistry({ ...first, username: "eve" }, [])).toBe("stale");
      expect(await store.findRegistry(first.id, "w2")).toBeUndefined();
    });

    test("a registry that was refused keeps no answer for its Idempotency-Key", async () => {
      const first = await createRegistry();
      const record = { id: "record", sealed: new Uint8Array([1]) };
      expect(await store.createRegistry(registryOf(), uncapped, [], record)).toBe("name_taken");
      expect(await store.deleteRegistry(first.id, 1, [])).toBe("done");
      expect(await store.createRegistry(registryOf(), uncapped, [], record)).toBe("done");
      await expect(store.createRegistry(registryOf({ name: "another" }), uncapped, [], record)).rejects.toMatchObject({
        name: "IdempotencyRecordExists",
      });
    });

    test("a registry that an image uses can't be deleted, and keeps its host", async () => {
      const registry = await createRegistry();
      const image = imageOf({ registryId: registry.id });
      await store.createImage(image, registry, uncapped, [], undefined);
      expect(await store.deleteRegistry(registry.id, 1, [])).toBe("in_use");
      expect(await store.updateRegistry({ ...registry, url: "quay.io", host: "quay.io" }, [])).toBe("in_use");
      expect(await store.updateRegistry({ ...registry, url: "ghcr.io" }, [])).toBe("done");
      await store.deleteImage(image.id, 1, []);
      expect(await store.deleteRegistry(registry.id, 1, [])).toBe("stale");
      expect(await store.deleteRegistry(registry.id, 2, [])).toBe("done");
    });

    test("the default image is created once, and not again", async () => {
      await store.createDefaultImage(imageOf({ workspaceId: "" }), [event("created")]);
      await store.createDefaultImage(imageOf({ workspaceId: "", name: "another" }), [event("created")]);
      const images = await store.listImages({ workspaceId: "w9", enabledOnly: true }, undefined, 10);
      expect(images.map(({ name }) => name)).toEqual(["tool"]);
      expect(await subjects()).toEqual(["created"]);
    });

    test("a deleted workspace accepts nothing new and is purged in batches", async () => {
      for (const name of ["a", "b", "c"]) {
        await createImage({ name });
        await createRegistry({ name });
      }
      const other = await createImage({ workspaceId: "w2" });
      await store.beginPurge("w1", at(1));
      expect(await store.createImage(imageOf(), undefined, uncapped, [event("created")], undefined)).toBe(
        "workspace_deleted",
      );
      expect(await store.createRegistry(registryOf(), uncapped, [], undefined)).toBe("workspace_deleted");
      expect(await store.listOpenPurges()).toEqual(["w1"]);
      expect(await store.listWorkspaces({ limit: 10 })).toEqual(["w2"]);

      expect(await store.purgeBatch("w1", 2)).toBe(false);
      expect(await store.listRegistries("w1", undefined, 10)).toHaveLength(1);
      expect(await store.purgeBatch("w1", 2)).toBe(false);
      expect(await store.purgeBatch("w1", 2)).toBe(true);
      await store.completePurge("w1", at(2), [event("purged")]);
      await store.completePurge("w1", at(2), [event("purged again")]);
      expect(await store.listOpenPurges()).toEqual([]);
      expect(await store.findImage(other.id, "w2")).toBeDefined();
      expect(await store.createImage(imageOf(), undefined, uncapped, [], undefined)).toBe("workspace_deleted");
      expect(await subjects()).toEqual(["purged"]);
    });

    test("a purge that is opened again is completed again", async () => {
      for (const ms of [1, 3]) {
        await store.beginPurge("w1", at(ms));
        expect(await store.listOpenPurges()).toEqual(["w1"]);
        await store.completePurge("w1", at(ms + 1), [event(`purged ${ms}`)]);
        expect(await store.listOpenPurges()).toEqual([]);
      }
      expect(await subjects()).toEqual(["purged 1", "purged 3"]);
    });

    test("workspaces are listed page by page", async () => {
      for (const workspaceId of ["w3", "w1", "w2"]) await createImage({ workspaceId });
      expect(await store.listWorkspaces({ limit: 2 })).toEqual(["w1", "w2"]);
      expect(await store.listWorkspaces({ limit: 2, afterId: "w2" })).toEqual(["w3"]);
    });

    test("verified layers are of one registry, and are forgotten by age", async () => {
      const [one, two] = [
        { digest: "sha256:1", diffId: "sha256:a" },
        { digest: "sha256:2", diffId: "sha256:b" },
      ];
      await store.putVerifiedLayers("ghcr.io", [one, two], at(0));
      await store.putVerifiedLayers("quay.io", [one], at(0));
      await store.putVerifiedLayers("ghcr.io", [two], at(2));
      await store.putVerifiedLayers("ghcr.io", [], at(2));
      expect(await store.findVerifiedLayers("ghcr.io", [one.digest, "sha256:3"])).toEqual([one]);
      expect(await store.findVerifiedLayers("quay.io", [one.digest, two.digest])).toEqual([one]);
      expect(await store.findVerifiedLayers("docker.io", [one.digest])).toEqual([]);
      expect(await store.findVerifiedLayers("ghcr.io", [])).toEqual([]);
      expect(await store.findVerifiedBeyond(0)).toEqual(at(2));
      expect(await store.findVerifiedBeyond(1)).toEqual(at(0));
      expect(await store.findVerifiedBeyond(3)).toBeUndefined();
      expect(await store.deleteVerifiedBefore(at(1), 1)).toBe(1);
      expect(await store.deleteVerifiedBefore(at(1), 10)).toBe(1);
      expect(await store.findVerifiedLayers("ghcr.io", [one.digest, two.digest])).toEqual([two]);
      await store.putVerifiedLayers("ghcr.io", [{ ...two, diffId: "sha256:c" }], at(3));
      expect(await store.findVerifiedLayers("ghcr.io", [two.digest])).toEqual([{ ...two, diffId: "sha256:c" }]);
    });

    describe("caps", () => {
      const caps = { maxImages: 2, maxRegistries: 2 };
      const record = { id: "record", sealed: new Uint8Array([1]) };
      const addImage = (fields?: Partial<ImageRecord>) =>
        store.createImage(imageOf(fields), undefined, caps, [event("created")], undefined);
      const addRegistry = (name: string) => store.createRegistry(registryOf({ name }), caps, [], undefined);

      test("a workspace has no more images than it may, and a deletion frees a place at once", async () => {
        const first = await createImage();
        expect(await addImage()).toBe("done");
        const refused = imageOf();
        expect(await store.createImage(refused, undefined, caps, [event("refused")], record)).toBe("too_many");
        expect(await store.findImage(refused.id, "w1")).toBeUndefined();
        expect(await subjects()).toEqual(["created"]);
        expect(await addImage({ workspaceId: "w2" })).toBe("done");
        for (const _ of [1, 2, 3]) expect(await addImage({ workspaceId: "" })).toBe("done");
        await store.deleteImage(first.id, 1, []);
        expect(await store.createImage(refused, undefined, caps, [], record)).toBe("done");
        expect(await addImage()).toBe("too_many");
      });

      test("a workspace has no more registries than it may, and a deletion frees a place at once", async () => {
        const first = await createRegistry({ name: "first" });
        expect(await addRegistry("second")).toBe("done");
        expect(await store.createRegistry(registryOf({ name: "third" }), caps, [], record)).toBe("too_many");
        expect(await addRegistry("second")).toBe("name_taken");
        await store.deleteRegistry(first.id, 1, []);
        expect(await store.createRegistry(registryOf({ name: "third" }), caps, [], record)).toBe("done");
        expect(await addRegistry("fourth")).toBe("too_many");
      });

      test("of many that are created at once for the last place, one is", async () => {
        await createImage();
        await createRegistry({ name: "first" });
        const outcomes = [
          await Promise.all([1, 2, 3, 4, 5].map(() => addImage())),
          await Promise.all(["a", "b", "c", "d", "e"].map(addRegistry)),
        ];
        const expected = ["done", "too_many", "too_many", "too_many", "too_many"];
        expect(outcomes.map((each) => each.sort())).toEqual([expected, expected]);
        expect(await store.countImages({ workspaceId: "w1", enabledOnly: false })).toBe(2);
        expect(await store.listRegistries("w1", undefined, 10)).toHaveLength(2);
      });
    });
  });
}
