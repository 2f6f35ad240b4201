import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { at } from "./store.fixture.ts";
import type { ImageRegistryStore } from "./store.ts";

/** What every adapter of `VerifiedLayers` does. `open` returns an empty store. */
export function describeVerifiedLayers(open: () => Promise<ImageRegistryStore>): void {
  describe("verified layers", () => {
    let store: ImageRegistryStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("verified layers are of one registry, and are forgotten by age", async () => {
      const [one, two] = [
        { digest: "sha256:1", diffId: "sha256:a" },
        { digest: "sha256:2", diffId: "sha256:b" },
      ];
      await store.verifiedLayers.put("ghcr.io", [one, two], at(0));
      await store.verifiedLayers.put("quay.io", [one], at(0));
      await store.verifiedLayers.put("ghcr.io", [two], at(2));
      await store.verifiedLayers.put("ghcr.io", [], at(2));
      expect(await store.verifiedLayers.find("ghcr.io", [one.digest, "sha256:3"])).toEqual([one]);
      expect(await store.verifiedLayers.find("quay.io", [one.digest, two.digest])).toEqual([one]);
      expect(await store.verifiedLayers.find("docker.io", [one.digest])).toEqual([]);
      expect(await store.verifiedLayers.find("ghcr.io", [])).toEqual([]);
      expect(await store.verifiedLayers.count()).toBe(3);
      expect(await store.verifiedLayers.deleteBefore(at(1), 1)).toBe(1);
      expect(await store.verifiedLayers.deleteBefore(at(1), 10)).toBe(1);
      expect(await store.verifiedLayers.find("ghcr.io", [one.digest, two.digest])).toEqual([two]);
      expect(await store.verifiedLayers.count()).toBe(1);
      await store.verifiedLayers.put("ghcr.io", [{ ...two, diffId: "sha256:c" }], at(3));
      expect(await store.verifiedLayers.find("ghcr.io", [two.digest])).toEqual([{ ...two, diffId: "sha256:c" }]);
    });
  });
}
