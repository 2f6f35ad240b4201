import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { newId } from "@sandgate/kit/base/ids";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import { WorkspacePurgedSchema } from "@sandgate/proto/telemetry/v1/telemetry_events";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { stagePurged } from "../events.ts";
import { queryLogs, queryMetrics } from "../query/queries.ts";
import { encodeLogs, encodeMetrics, openLogs, purgeLimits } from "./chunks.ts";
import { fromMillis, type LogRow, toMicros } from "./rows.ts";
import type { Source, TelemetryStore } from "./store.ts";

const startMs = Date.UTC(2026, 0, 1);
/** Everything, for a caller who never aborts. */
const always = {
  window: { sinceNs: 0n, untilNs: fromMillis(startMs) * 2n },
  size: { rows: 10_000, bytes: Number.POSITIVE_INFINITY, chunks: Number.POSITIVE_INFINITY },
  signal: new AbortController().signal,
};
const unlimited = { sandboxBytes: 0, workspaceBytes: 0 };

function lineAt(ms: number, log: string, stream: LogRow["stream"] = "stdout"): LogRow {
  return { timeNs: fromMillis(startMs + ms), stream, log };
}

/** What every store of this service must do. `open` opens an empty one. */
export function describeTelemetryStore(name: string, open: () => Promise<TelemetryStore>): void {
  describe(`telemetry store on ${name}`, () => {
    let store: TelemetryStore;
    let source: Source;
    beforeEach(async () => {
      store = await open();
      source = { sandboxId: newId(), workspaceId: newId(), containerId: "c1", kind: "logs" };
    });
    afterEach(() => store.close());

    async function append(
      fromCursor: string,
      toCursor: string,
      rows: readonly LogRow[],
      o: { source?: Source; final?: boolean; quota?: number; workspaceQuota?: number; now?: number } = {},
    ) {
      const chunk = rows.length > 0 ? await encodeLogs(rows) : undefined;
      return store.appendBatch(
        { source: o.source ?? source, fromCursor, toCursor, chunk, final: o.final ?? false },
        {
          quotas: { sandboxBytes: o.quota ?? 0, workspaceBytes: o.workspaceQuota ?? 0 },
          now: new Date(o.now ?? startMs),
        },
      );
    }
    const linesOf = async (sandboxId = source.sandboxId) =>
      (await queryLogs(store, { ...always, sandboxId, stream: undefined })).rows.map((row) => row.log);
    const samplesOf = async () => (await queryMetrics(store, { ...always, sandboxId: source.sandboxId })).rows;

    test("a batch that follows the stored cursor is accepted, any other is refused with that cursor and changes nothing", async () => {
      expect(await append("", "a", [lineAt(0, "1")])).toMatchObject({ accepted: true, storedCursor: "a" });
      expect(await append("a", "b", [lineAt(1, "2")])).toMatchObject({ accepted: true, storedCursor: "b" });
      expect(await append("a", "b", [lineAt(1, "2")])).toMatchObject({ accepted: false, storedCursor: "b" });
      expect(await append("c", "d", [lineAt(2, "skipped")])).toMatchObject({ accepted: false, storedCursor: "b" });
      expect(await append("", "z", [lineAt(2, "first again")])).toMatchObject({ accepted: false, storedCursor: "b" });
      expect(await linesOf()).toEqual(["1", "2"]);
    });

    test("of batches sent at once from one cursor one is accepted", async () => {
      const answers = await Promise.all([1, 2, 3, 4].map((i) => append("", `${i}`, [lineAt(i, `${i}`)])));
      expect(answers.filter((answer) => answer.accepted)).toHaveLength(1);
      expect(await linesOf()).toHaveLength(1);
    });

    test("each source has a cursor of its own", async () => {
      await append("", "a", [lineAt(0, "1")]);
      const second: Source = { ...source, containerId: "c2" };
      expect(await append("", "x", [lineAt(1, "2")], { source: second })).toMatchObject({ accepted: true });
      const metrics: Source = { ...source, kind: "metrics" };
      const chunk = await encodeMetrics([{ timeNs: fromMillis(startMs), cpuSeconds: 1.5, memoryBytes: 4096 }]);
      const batch = { source: metrics, fromCursor: "", toCursor: "m", chunk, final: false };
      expect(await store.appendBatch(batch, { quotas: unlimited, now: new Date() })).toMatchObject({ accepted: true });
      expect(await linesOf()).toEqual(["1", "2"]);
      expect(await samplesOf()).toMatchObject([{ cpuSeconds: 1.5, memoryBytes: 4096, sequence: 1 }]);
      expect(await store.findSandbox(source.sandboxId)).toMatchObject({ sequences: { logs: 2, metrics: 1 } });
    });

    test("a sandbox is final once all its sources are", async () => {
      expect(await store.findSandbox(source.sandboxId)).toBeUndefined();
      await append("", "a", []);
      await append("", "m", [], { source: { ...source, kind: "metrics" } });
      expect(await store.findSandbox(source.sandboxId)).toMatchObject({
        workspaceId: source.workspaceId,
        final: false,
      });
      await append("a", "a", [], { final: true });
      expect(await store.findSandbox(source.sandboxId)).toMatchObject({ final: false });
      await append("m", "m", [], { final: true, source: { ...source, kind: "metrics" } });
      expect(await store.findSandbox(source.sandboxId)).toMatchObject({ final: true });
    });

    test("a container is drained once its log was stored to its end, or its workspace was deleted", async () => {
      expect(await store.isDrained(source)).toBe(false);
      await append("", "a", [lineAt(0, "1")]);
      await append("", "m", [], { source: { ...source, kind: "metrics" }, final: true });
      expect(await store.isDrained(source)).toBe(false);
      await append("a", "a", [], { final: true });
      expect(await store.isDrained(source)).toBe(true);
      const second = { ...source, containerId: "c2" };
      await append("", "x", [lineAt(1, "2")], { source: second });
      expect(await store.isDrained(second)).toBe(false);
      expect(await store.isDrained(source)).toBe(true);
      await store.beginPurge(source.workspaceId, new Date(startMs));
      expect(await store.isDrained(second)).toBe(true);
    });

    test("a sandbox is drained once the logs of all its containers were stored to their ends", async () => {
      const isDrained = () => store.isSandboxDrained(source);
      expect(await isDrained()).toBe(false);
      await append("", "m", [], { source: { ...source, kind: "metrics" }, final: true });
      expect(await isDrained()).toBe(false);
      await append("", "a", [lineAt(0, "1")], { final: true });
      expect(await isDrained()).toBe(true);
      const second = { ...source, containerId: "c2" };
      await append("", "x", [lineAt(1, "2")], { source: second });
      expect(await isDrained()).toBe(false);
      await append("x", "x", [], { source: second, final: true });
      expect(await isDrained()).toBe(true);
    });

    test("a sandbox of a deleted workspace is drained, whether something of it is stored or not", async () => {
      const unknown = { ...source, sandboxId: newId() };
      await append("", "a", [lineAt(0, "1")]);
      await store.beginPurge(newId(), new Date(startMs));
      expect(await store.isSandboxDrained(source)).toBe(false);
      expect(await store.isSandboxDrained(unknown)).toBe(false);
      await store.beginPurge(source.workspaceId, new Date(startMs));
      expect(await store.isSandboxDrained(source)).toBe(true);
      expect(await store.isSandboxDrained(unknown)).toBe(true);
      while (await store.purgeBatch(source.workspaceId, purgeLimits));
      await store.completePurge(source.workspaceId, new Date(startMs), []);
      expect(await store.isSandboxDrained(source)).toBe(true);
    });

    test("a sandbox does not change its workspace", async () => {
      await append("", "a", [lineAt(0, "1")]);
      const foreign = { ...source, workspaceId: newId(), containerId: "c2" };
      await expect(append("", "a", [lineAt(0, "x")], { source: foreign })).rejects.toMatchObject({
        reason: "CONFLICT",
      });
    });

    test("small batches share a chunk, large ones have one each, and rows are numbered across chunks", async () => {
      for (let i = 0; i < 5; i += 1) await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i, `${i}`)]);
      const big = Array.from({ length: 1_000 }, (_, i) => lineAt(5 + i, `${5 + i}`));
      await append("4", "5", big);
      await append("5", "6", [lineAt(2_000, "last", "stderr")]);
      const chunks = await store.listChunksAfter({ sandboxId: source.sandboxId, kind: "logs", sequence: 0, limit: 10 });
      const lastSequences = await Promise.all(
        chunks.map(async (chunk) => chunk.firstSequence + (await openLogs(chunk)).timesNs.length - 1),
      );
      expect(chunks.map(({ firstSequence }, i) => [firstSequence, lastSequences[i]])).toEqual([
        [1, 5],
        [6, 1_005],
        [1_006, 1_006],
      ]);
      expect(
        await store.listChunksAfter({ sandboxId: source.sandboxId, kind: "logs", sequence: 5, limit: 1 }),
      ).toMatchObject([{ firstSequence: 6 }]);
      expect(await linesOf()).toEqual([...Array.from({ length: 1_005 }, (_, i) => `${i}`), "last"]);
    });

    test("chunks are listed by time, newest first, page by page, and by stream", async () => {
      const line = (i: number) => [lineAt(i * 1_000, "x".repeat(65_536), i % 2 ? "stderr" : "stdout")];
      for (let i = 0; i < 6; i += 1) await append(i ? `${i - 1}` : "", `${i}`, line(i));
      const us = (i: number) => toMicros(fromMillis(startMs + i * 1_000));
      const query = { sandboxId: source.sandboxId, kind: "logs", sinceUs: us(1), untilUs: us(4) } as const;
      const first = await store.listChunks({ ...query, limit: 3 });
      expect(first.map((chunk) => chunk.lastUs)).toEqual([us(4), us(3), us(2)]);
      const rest = await store.listChunks({ ...query, limit: 3, after: first.at(-1) });
      expect(rest.map((chunk) => chunk.lastUs)).toEqual([us(1)]);
      const stderr = await store.listChunks({ ...query, stream: "stderr", limit: 10 });
      expect(stderr.map((chunk) => chunk.lastUs)).toEqual([us(3), us(1)]);
    });

    test("above the quota the oldest lines go, samples stay", async () => {
      const metrics: Source = { ...source, kind: "metrics" };
      const chunk = await encodeMetrics([{ timeNs: fromMillis(startMs), cpuSeconds: 1, memoryBytes: 1 }]);
      await store.appendBatch(
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

    test("a chunk of which an earlier version counted only the text counts in full once new lines are merged into it", async () => {
      const chunk = { ...(await encodeLogs(emptyLines(500))), textBytes: 0 };
      const batch = { source, fromCursor: "", toCursor: "a", chunk, final: false };
      await store.appendBatch(batch, { quotas: unlimited, now: new Date(startMs) });
      await append("a", "b", emptyLines(1));
      await append("b", "c", emptyLines(1_000), { quota: 1_501 * 13 });
      expect(await linesOf()).toHaveLength(1_501);
      await append("c", "d", emptyLines(1_000), { quota: 2_501 * 13 - 1 });
      expect(await linesOf()).toHaveLength(2_000);
      await append("d", "e", emptyLines(1_000), { quota: 3_000 * 13 });
      expect(await linesOf()).toHaveLength(3_000);
    });

    /** A line that has a chunk to itself, and what it counts for. */
    const longText = (text: string) => text + "x".repeat(65_536 - text.length);
    const longBytes = 65_536 + 13;
    const sandboxOf = (workspaceId: string): Source => ({ ...source, workspaceId, sandboxId: newId() });
    /** Appends lines in chunks of their own, the first a millisecond before the second and so on. */
    async function appendLong(o: {
      source: Source;
      from: number;
      count: number;
      final?: boolean;
      workspaceQuota?: number;
    }) {
      let removed = 0;
      for (let i = 0; i < o.count; i += 1) {
        const at = o.from + i;
        const { accepted, removedLines } = await append(
          i ? `${at - 1}` : "",
          `${at}`,
          [lineAt(at, longText(`${at}`))],
          {
            source: o.source,
            final: (o.final ?? false) && i === o.count - 1,
            workspaceQuota: o.workspaceQuota ?? 0,
            now: startMs + at,
          },
        );
        expect(accepted).toBe(true);
        removed += removedLines.workspace;
      }
      return removed;
    }
    const numbersOf = async ({ sandboxId }: Source) =>
      (await linesOf(sandboxId)).map((line) => Number.parseInt(line, 10));

    test("above its workspace's quota go the lines of the sandboxes that ended first, then the oldest, and no other workspace's", async () => {
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
      const [first, second] = [sandboxOf(source.workspaceId), sandboxOf(source.workspaceId)];
      await appendLong({ source: first, from: 0, count: 2, workspaceQuota: 1 });
      expect(await numbersOf(first)).toEqual([1]);
      await appendLong({ source: second, from: 5, count: 1, workspaceQuota: 1 });
      expect([await numbersOf(first), await numbersOf(second)]).toEqual([[], [5]]);
    });

    test("what a workspace has is counted exactly, also when batches of many sandboxes come at once", async () => {
      const count = 8;
      const sandboxes = Array.from({ length: count }, () => sandboxOf(source.workspaceId));
      const quota = 10 * longBytes;
      await Promise.all(
        sandboxes.map((each, i) => appendLong({ source: each, from: 10 * i, count: 3, workspaceQuota: quota })),
      );
      const kept = (await Promise.all(sandboxes.map(numbersOf))).flat();
      expect(kept).toHaveLength(10);
      expect(await store.trimTotal(quota)).toEqual({ lines: 0, more: false });
      expect(await store.trimTotal(quota - 1)).toEqual({ lines: 1, more: false });
    });

    test("all workspaces together keep to a total, and the one that has most gives first", async () => {
      const [noisy, quiet, third] = [sandboxOf(newId()), sandboxOf(newId()), sandboxOf(newId())];
      await appendLong({ source: quiet, from: 0, count: 3 });
      await appendLong({ source: third, from: 10, count: 5 });
      await appendLong({ source: noisy, from: 20, count: 9 });
      const total = 17 * longBytes;
      expect(await store.trimTotal(total)).toEqual({ lines: 0, more: false });
      expect(await store.trimTotal(total - 1)).toEqual({ lines: 1, more: false });
      while ((await store.trimTotal(12 * longBytes)).more);
      expect(await numbersOf(noisy)).toEqual([25, 26, 27, 28]);
      expect(await numbersOf(third)).toEqual([10, 11, 12, 13, 14]);
      while ((await store.trimTotal(10 * longBytes)).more);
      expect(await numbersOf(third)).toEqual([12, 13, 14]);
      expect(await numbersOf(noisy)).toEqual([25, 26, 27, 28]);
      expect(await numbersOf(quiet)).toEqual([0, 1, 2]);
    });

    test("what a sandbox's quota, the sweep and a purge remove no longer counts for the workspace", async () => {
      const [other, { workspaceId }] = [sandboxOf(newId()), source];
      await appendLong({ source: other, from: 1_000, count: 1 });
      const isCounted = async (long: number) => {
        expect(await store.trimTotal(long * longBytes)).toEqual({ lines: 0, more: false });
        // Nothing is counted of what is gone, either: that would hide what there is too much of.
        await appendLong({ source: sandboxOf(workspaceId), from: 2_000, count: 1 });
        expect(await store.trimTotal(long * longBytes)).toEqual({ lines: 1, more: false });
      };
      for (let i = 0; i < 4; i += 1) {
        await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i, longText(`${i}`))], { quota: 2 * longBytes });
      }
      await isCounted(3);
      while (await store.sweepExpired(new Date(startMs + 500)));
      await isCounted(1 + 1);
      await store.beginPurge(workspaceId, new Date(startMs));
      while (await store.purgeBatch(workspaceId, purgeLimits));
      expect(await store.trimTotal(longBytes)).toEqual({ lines: 0, more: false });
      expect(await linesOf(other.sandboxId)).toHaveLength(1);
    });

    test("what has expired is swept, batch by batch, and the sandbox with its last row unless a batch came later", async () => {
      for (let i = 0; i < 40; i += 1) {
        await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i, "x".repeat(65_536))], { now: startMs + i });
      }
      while (await store.sweepExpired(new Date(startMs + 38)));
      expect(await linesOf()).toHaveLength(2);
      expect(await append("39", "40", [])).toMatchObject({ accepted: true });
      while (await store.sweepExpired(new Date(startMs + 1_000)));
      expect(await linesOf()).toEqual([]);
      expect(await store.findSandbox(source.sandboxId)).toBeUndefined();
    });

    test("a live source keeps its cursor when all its rows have expired", async () => {
      await append("", "a", [lineAt(0, "old")], { now: startMs });
      await append("a", "b", [], { now: startMs + 10_000 });
      while (await store.sweepExpired(new Date(startMs + 5_000)));
      expect(await linesOf()).toEqual([]);
      expect(await append("a", "c", [])).toMatchObject({ accepted: false, storedCursor: "b" });
    });

    test("a purged workspace has nothing left, accepts nothing, and is announced once per purge", async () => {
      const other: Source = { ...source, sandboxId: newId(), workspaceId: newId() };
      await append("", "a", [lineAt(0, "kept")], { source: other });
      for (let s = 0; s < 3; s += 1) {
        const each: Source = { ...source, sandboxId: newId() };
        for (let i = 0; i < 40; i += 1) {
          await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i, "x".repeat(65_536))], { source: each });
        }
      }
      const { workspaceId } = source;
      expect(await store.listWorkspaces({ limit: 10 })).toEqual([workspaceId, other.workspaceId].sort());
      await store.beginPurge(workspaceId, new Date(startMs));
      await expect(append("", "a", [lineAt(0, "late")])).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });
      expect(await store.listOpenPurges()).toEqual([workspaceId]);
      expect(await store.listWorkspaces({ limit: 10 })).toEqual([other.workspaceId]);
      // So small that no sandbox's chunks are a single batch.
      const limits = { sandboxes: 2, chunks: 30, textBytes: 1024 * 1024 };
      let batches = 1;
      while (await store.purgeBatch(workspaceId, limits)) batches += 1;
      expect(batches).toBeGreaterThan(7);
      expect(await store.purgeBatch(workspaceId, limits)).toBe(false);
      const at = new Date(startMs + 1);
      await store.completePurge(workspaceId, at, [stagePurged(workspaceId, at)]);
      expect(await store.listOpenPurges()).toEqual([]);
      await expect(append("", "a", [lineAt(0, "late")])).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });

      const [unsent] = await store.outbox.unsent(10);
      const event = unsent && fromBinary(EventSchema, unsent.bytes);
      expect(event).toMatchObject({
        subject: "sandgate.telemetry.workspace.workspace_purged.v1",
        entityId: workspaceId,
      });
      expect(event?.payload && anyUnpack(event.payload, WorkspacePurgedSchema)).toMatchObject({ workspaceId });
      expect(await linesOf(other.sandboxId)).toEqual(["kept"]);

      await store.beginPurge(workspaceId, new Date(startMs + 2));
      expect(await store.listOpenPurges()).toEqual([workspaceId]);
    });

    test("a purge removes the small chunks of many sandboxes in one transaction", async () => {
      const sandboxes = Array.from({ length: 6 }, () => newId());
      for (const sandboxId of sandboxes) {
        await append("", "a", [lineAt(0, "line")], { source: { ...source, sandboxId } });
      }
      await store.beginPurge(source.workspaceId, new Date());
      expect(await store.purgeBatch(source.workspaceId, purgeLimits)).toBe(false);
      for (const sandboxId of sandboxes) {
        expect(await store.findSandbox(sandboxId)).toBeUndefined();
        expect(await linesOf(sandboxId)).toEqual([]);
      }
    });

    test("an unknown workspace can be purged too", async () => {
      await store.beginPurge(source.workspaceId, new Date());
      expect(await store.purgeBatch(source.workspaceId, purgeLimits)).toBe(false);
      await expect(append("", "a", [])).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });
    });
  });
}
