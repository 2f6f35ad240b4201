import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { ImageRecord } from "../domain/images.ts";
import { describeImages } from "./images.contract.ts";
import { describePurges } from "./purges.contract.ts";
import { describeRegistries } from "./registries.contract.ts";
import { at, createImage, createRegistry, event, imageOf, quotas, registryOf } from "./store.fixture.ts";
import type { ImageRegistryStore } from "./store.ts";
import { describeVerifiedLayers } from "./verified-layers.contract.ts";

/** What every store of images and registries does, whatever the database. `open` returns an empty one. */
export function describeImageRegistryStore(name: string, open: () => Promise<ImageRegistryStore>): void {
  describe(`image registry store on ${name}`, () => {
    describeImages(open);
    describeRegistries(open);
    describePurges(open);
    describeVerifiedLayers(open);

    let store: ImageRegistryStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const addImage = (fields?: Partial<ImageRecord>) =>
      store.images.create(imageOf(fields), undefined, quotas, [event("created")], undefined);

    const addRegistry = (name: string) => store.registries.create(registryOf({ name }), quotas, [], undefined);

    test("lists continue after a cursor, newest first, ties by id", async () => {
      const images = [await createImage(store, { createdAt: at(1) })];
      images.push(await createImage(store, { createdAt: at(2) }), await createImage(store, { createdAt: at(2) }));
      const expected = images.sort((a, b) => +b.createdAt - +a.createdAt || (a.id < b.id ? 1 : -1));
      const filter = { workspaceId: "w1", enabledOnly: false };
      const first = await store.images.list(filter, undefined, 2);
      const rest = await store.images.list(filter, first.at(-1), 2);
      expect([...first, ...rest].map(({ id }) => id)).toEqual(expected.map(({ id }) => id));

      const older = await createRegistry(store, { name: "a", createdAt: at(1) });
      const newer = await createRegistry(store, { name: "b", createdAt: at(2) });
      expect(await store.registries.list("w1", undefined, 1)).toEqual([newer]);
      expect(await store.registries.list("w1", newer, 9)).toEqual([older]);
      expect(await store.registries.list("w2", undefined, 9)).toEqual([]);
    });

    test("of many that are created at once for the last place, one is", async () => {
      await createImage(store);
      await createRegistry(store, { name: "first" });
      const outcomes = [
        await Promise.all([1, 2, 3, 4, 5].map(() => addImage())),
        await Promise.all(["a", "b", "c", "d", "e"].map(addRegistry)),
      ];
      const expected = ["done", "too_many", "too_many", "too_many", "too_many"];
      expect(outcomes.map((each) => each.sort())).toEqual([expected, expected]);
      expect(await store.images.count({ workspaceId: "w1", enabledOnly: false })).toBe(2);
      expect(await store.registries.list("w1", undefined, 10)).toHaveLength(2);
    });
  });
}
