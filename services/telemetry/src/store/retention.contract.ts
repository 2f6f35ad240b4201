import { newId } from "@sandgate/kit/base/ids";
import { hourMs } from "@sandgate/kit/base/time";
import { describe, expect, test } from "vitest";
import { purgeLimits } from "../domain/removals.ts";
import { lineAt, longBytes, longText, startMs, useStore } from "./store.fixture.ts";
import type { TelemetryStore } from "./store.ts";

/** What every store must remove of what is too old or too much. `open` opens an empty one. */
export function describeRetention(name: string, open: () => Promise<TelemetryStore>): void {
  describe(`retention on ${name}`, () => {
    const fixture = useStore(open);
    const { append, appendLong, linesOf, numbersOf, sandboxOf } = fixture;

    test("above the total of all workspaces, the one that has most loses lines first", async () => {
      const { store } = fixture;
      const [noisy, quiet, third] = [sandboxOf(newId()), sandboxOf(newId()), sandboxOf(newId())];
      await appendLong({ source: quiet, from: 0, count: 3 });
      await appendLong({ source: third, from: 10, count: 5 });
      await appendLong({ source: noisy, from: 20, count: 9 });
      const total = 17 * longBytes;
      expect(await store.retention.trimTotal(total)).toEqual({ lines: 0, more: false });
      expect(await store.retention.trimTotal(total - 1)).toEqual({ lines: 1, more: false });
      while ((await store.retention.trimTotal(12 * longBytes)).more);
      expect(await numbersOf(noisy)).toEqual([25, 26, 27, 28]);
      expect(await numbersOf(third)).toEqual([10, 11, 12, 13, 14]);
      while ((await store.retention.trimTotal(10 * longBytes)).more);
      expect(await numbersOf(third)).toEqual([12, 13, 14]);
      expect(await numbersOf(noisy)).toEqual([25, 26, 27, 28]);
      expect(await numbersOf(quiet)).toEqual([0, 1, 2]);
    });

    test("what a sandbox's quota, the sweep and a purge remove no longer counts for the workspace", async () => {
      const { store, source } = fixture;
      const [other, { workspaceId }] = [sandboxOf(newId()), source];
      await appendLong({ source: other, from: 1_000, count: 1 });
      const isCounted = async (long: number) => {
        expect(await store.retention.trimTotal(long * longBytes)).toEqual({ lines: 0, more: false });
        // Nothing is counted of what is gone, either: that would hide what there is too much of.
        await appendLong({ source: sandboxOf(workspaceId), from: 2_000, count: 1 });
        expect(await store.retention.trimTotal(long * longBytes)).toEqual({ lines: 1, more: false });
      };
      for (let i = 0; i < 4; i += 1) {
        await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i, longText(`${i}`))], { quota: 2 * longBytes });
      }
      await isCounted(3);
      while (await store.retention.sweepExpired(new Date(startMs + 500)));
      await isCounted(1 + 1);
      await store.purges.beginPurge(workspaceId, new Date(startMs));
      while (await store.retention.purgeBatch(workspaceId, purgeLimits));
      expect(await store.retention.trimTotal(longBytes)).toEqual({ lines: 0, more: false });
      expect(await linesOf(other.sandboxId)).toHaveLength(1);
    });

    test("what has expired is swept, batch by batch, and the sandbox with its last row unless a batch came later", async () => {
      const { store, source } = fixture;
      for (let i = 0; i < 40; i += 1) {
        await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i, "x".repeat(65_536))], { now: startMs + i });
      }
      while (await store.retention.sweepExpired(new Date(startMs + 38)));
      expect(await linesOf()).toHaveLength(2);
      expect(await append("39", "40", [])).toMatchObject({ accepted: true });
      while (await store.retention.sweepExpired(new Date(startMs + 1_000)));
      expect(await linesOf()).toEqual([]);
      expect(await store.sources.findSandbox(source.sandboxId)).toBeUndefined();
    });

    test("each line of a log that grows slowly is swept within a day of its time to go", async () => {
      const { store } = fixture;
      for (let i = 0; i < 16; i += 1) await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i * 6 * hourMs, `${i}`)]);
      while (await store.retention.sweepExpired(new Date(startMs + 48 * hourMs)));
      const left = (await linesOf()).map(Number);
      expect(left[0]).toBeGreaterThanOrEqual(24 / 6);
      expect(left).toEqual(expect.arrayContaining([8, 9, 10, 11, 12, 13, 14, 15]));
    });

    test("a live source keeps its cursor when all its rows have expired", async () => {
      const { store } = fixture;
      await append("", "a", [lineAt(0, "old")], { now: startMs });
      expect(await append("a", "a", [], { now: startMs + 10_000 })).toMatchObject({ accepted: true });
      while (await store.retention.sweepExpired(new Date(startMs + 5_000)));
      expect(await linesOf()).toEqual([]);
      expect(await append("", "c", [])).toMatchObject({ accepted: false, storedCursor: "a" });
    });
  });
}
