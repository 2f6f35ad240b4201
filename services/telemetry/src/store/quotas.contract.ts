import { newId } from "@sandgate/kit/base/ids";
import { describe, expect, test } from "vitest";
import type { Source } from "../domain/batches.ts";
import { encodeLogs, encodeMetrics } from "../domain/chunks.ts";
import { fromMillis } from "../domain/rows.ts";
import { lineAt, longBytes, longText, startMs, unlimited, useStore } from "./store.fixture.ts";
import type { TelemetryStore } from "./store.ts";

/** What every store must remove for a quota when it appends. `open` opens an empty one. */
export function describeQuotas(name: string, open: () => Promise<TelemetryStore>): void {
  describe(`log quotas on ${name}`, () => {
    const fixture = useStore(open);
    const { append, appendLong, linesOf, numbersOf, samplesOf, sandboxOf } = fixture;

    test("above the quota the oldest lines are removed, and samples stay", async () => {
      const { store, source } = fixture;
      const metrics: Source = { ...source, kind: "metrics" };
      const chunk = await encodeMetrics([{ timeNs: fromMillis(startMs), cpuSeconds: 1, memoryBytes: 1 }]);
      await store.sources.append(
        { source: metrics, fromCursor: "", toCursor: "m", chunk, final: false },
        { quotas: unlimited, now: new Date(startMs) },
      );
      for (let i = 0; i < 6; i += 1) {
        const line = lineAt(i, `${i}${"x".repeat(65_535)}`);
        await append(i ? `${i - 1}` : "", `${i}`, [line], { quota: 4 * 65_536 });
      }
      expect((await linesOf()).map((line) => line[0])).toEqual(["3", "4", "5"]);
      expect(await samplesOf()).toHaveLength(1);
    });

    const emptyLines = (count: number) => Array.from({ length: count }, (_, i) => lineAt(i, ""));

    test("the quota counts empty lines too", async () => {
      for (let i = 0; i < 6; i += 1) {
        await append(i ? `${i - 1}` : "", `${i}`, emptyLines(1_000), { quota: 3 * 13_000 });
      }
      expect(await linesOf()).toHaveLength(3_000);
    });

    test.for(["quota", "workspaceQuota"] as const)(
      "the %s holds when much comes at once, however small the chunks that are stored",
      async (quota) => {
        const bytes = 64 * 501 * 13;
        for (let i = 0; i < 64; i += 1) {
          await append(i ? `${i - 1}` : "", `${i}`, emptyLines(501), { [quota]: bytes });
        }
        expect(await linesOf()).toHaveLength(64 * 501);
        const long = Array.from({ length: 5 }, (_, i) => lineAt(501 + i, longText(`${i}`)));
        await append("63", "64", long, { [quota]: bytes });
        expect(await linesOf()).toHaveLength(Math.floor((bytes - 5 * longBytes) / (501 * 13)) * 501 + 5);
      },
    );

    test("a chunk that was counted for less than it holds counts in full once new lines are merged into it", async () => {
      const { store, source } = fixture;
      const chunk = { ...(await encodeLogs(emptyLines(500))), textBytes: 0 };
      const batch = { source, fromCursor: "", toCursor: "a", chunk, final: false };
      await store.sources.append(batch, { quotas: unlimited, now: new Date(startMs) });
      await append("a", "b", emptyLines(1));
      await append("b", "c", emptyLines(1_000), { quota: 1_501 * 13 });
      expect(await linesOf()).toHaveLength(1_501);
      await append("c", "d", emptyLines(1_000), { quota: 2_501 * 13 - 1 });
      expect(await linesOf()).toHaveLength(2_000);
      await append("d", "e", emptyLines(1_000), { quota: 3_000 * 13 });
      expect(await linesOf()).toHaveLength(3_000);
    });

    test("above a workspace's quota ended sandboxes lose lines first, then the oldest go, and no other workspace loses any", async () => {
      const { source } = fixture;
      const [{ workspaceId }, other] = [source, sandboxOf(newId())];
      await appendLong({ source: other, from: 0, count: 3 });
      const [early, live, endedFirst, endedLast] = [1, 2, 3, 4].map(() => sandboxOf(workspaceId));
      if (!early || !live || !endedFirst || !endedLast) throw new Error("there are four");
      await appendLong({ source: early, from: 0, count: 2 });
      await appendLong({ source: endedLast, from: 10, count: 2 });
      await appendLong({ source: endedFirst, from: 20, count: 2, final: true });
      await append("11", "11", [], { source: endedLast, final: true, now: startMs + 30 });

      const quota = { workspaceQuota: 6 * longBytes };
      expect(await appendLong({ source: live, from: 40, count: 1, ...quota })).toBe(1);
      expect(await numbersOf(endedFirst)).toEqual([21]);
      const more = async (from: number, to: number) => {
        for (let at = from; at <= to; at += 1) {
          const line = lineAt(at, longText(`${at}`));
          await append(`${at - 1}`, `${at}`, [line], { source: live, now: startMs + at, ...quota });
        }
      };
      await more(41, 43);
      expect(await numbersOf(endedFirst)).toEqual([]);
      expect(await numbersOf(endedLast)).toEqual([]);
      expect(await numbersOf(early)).toEqual([0, 1]);
      await more(44, 47);
      expect(await numbersOf(early)).toEqual([]);
      expect(await numbersOf(live)).toEqual([42, 43, 44, 45, 46, 47]);
      expect(await numbersOf(other)).toEqual([0, 1, 2]);
    });

    test("new lines stay, however small the workspace's quota", async () => {
      const { source } = fixture;
      const [first, second] = [sandboxOf(source.workspaceId), sandboxOf(source.workspaceId)];
      await appendLong({ source: first, from: 0, count: 2, workspaceQuota: 1 });
      expect(await numbersOf(first)).toEqual([1]);
      await appendLong({ source: second, from: 5, count: 1, workspaceQuota: 1 });
      expect([await numbersOf(first), await numbersOf(second)]).toEqual([[], [5]]);
    });

    test("what a workspace has is counted exactly, also when batches of many sandboxes come at once", async () => {
      const { store, source } = fixture;
      const count = 8;
      const sandboxes = Array.from({ length: count }, () => sandboxOf(source.workspaceId));
      const quota = 10 * longBytes;
      await Promise.all(
        sandboxes.map((each, i) => appendLong({ source: each, from: 10 * i, count: 3, workspaceQuota: quota })),
      );
      const kept = (await Promise.all(sandboxes.map(numbersOf))).flat();
      expect(kept).toHaveLength(10);
      expect(await store.retention.trimTotal(quota)).toEqual({ lines: 0, more: false });
      expect(await store.retention.trimTotal(quota - 1)).toEqual({ lines: 1, more: false });
    });
  });
}
