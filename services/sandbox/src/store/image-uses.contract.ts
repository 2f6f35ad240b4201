import { describe, expect, onTestFinished, test } from "vitest";
import type { SandboxStore } from "./store.ts";

/** What every adapter of `ImageUses` must do. `open` gives an empty store. */
export function describeImageUses(name: string, open: () => Promise<SandboxStore>): void {
  describe(`image uses on ${name}`, () => {
    test("keeps the last use of each image until it is forgotten", async () => {
      const store = await open();
      onTestFinished(() => store.close());
      const names = ["127.0.0.1:5080/a@sha256:aa", "127.0.0.1:5080/b@sha256:bb"];
      for (const [name, seconds] of [
        [names[0], 10],
        [names[1], 20],
        [names[0], 30],
        [names[0], 5],
      ] as const) {
        await store.imageUses.record({ name: name ?? "", at: new Date(seconds * 1000) });
      }
      const uses = () =>
        store.imageUses.list().then((all) => all.toSorted((one, other) => one.name.localeCompare(other.name)));
      expect(await uses()).toEqual([
        { name: names[0], at: new Date(30_000) },
        { name: names[1], at: new Date(20_000) },
      ]);
      await store.imageUses.forget([names[0] ?? "", "other"]);
      expect(await uses()).toEqual([{ name: names[1], at: new Date(20_000) }]);
    });
  });
}
