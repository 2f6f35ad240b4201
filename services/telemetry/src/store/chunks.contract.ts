import { describe, expect, test } from "vitest";
import { openLogs } from "../domain/chunks.ts";
import { fromMillis, toMicros } from "../domain/rows.ts";
import { lineAt, startMs, useStore } from "./store.fixture.ts";
import type { TelemetryStore } from "./store.ts";

/** What every store of chunks must do. `open` opens an empty one. */
export function describeChunks(name: string, open: () => Promise<TelemetryStore>): void {
  describe(`chunks on ${name}`, () => {
    const fixture = useStore(open);
    const { append, linesOf } = fixture;

    test("small batches share a chunk, large ones have one each, and rows are numbered across chunks", async () => {
      const { store, source } = fixture;
      for (let i = 0; i < 5; i += 1) await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i, `${i}`)]);
      const big = Array.from({ length: 1_000 }, (_, i) => lineAt(5 + i, `${5 + i}`));
      await append("4", "5", big);
      await append("5", "6", [lineAt(2_000, "last", "stderr")]);
      const chunks = await store.chunks.listAfter({
        sandboxId: source.sandboxId,
        kind: "logs",
        sequence: 0,
        limit: 10,
      });
      const lastSequences = await Promise.all(
        chunks.map(async (chunk) => chunk.firstSequence + (await openLogs(chunk)).timesNs.length - 1),
      );
      expect(chunks.map(({ firstSequence }, i) => [firstSequence, lastSequences[i]])).toEqual([
        [1, 5],
        [6, 1_005],
        [1_006, 1_006],
      ]);
      expect(
        await store.chunks.listAfter({ sandboxId: source.sandboxId, kind: "logs", sequence: 5, limit: 1 }),
      ).toMatchObject([{ firstSequence: 6 }]);
      expect(await linesOf()).toEqual([...Array.from({ length: 1_005 }, (_, i) => `${i}`), "last"]);
    });

    test("chunks are listed by time, newest first, page by page, and by stream", async () => {
      const { store, source } = fixture;
      const line = (i: number) => [lineAt(i * 1_000, "x".repeat(65_536), i % 2 ? "stderr" : "stdout")];
      for (let i = 0; i < 6; i += 1) await append(i ? `${i - 1}` : "", `${i}`, line(i));
      const us = (i: number) => toMicros(fromMillis(startMs + i * 1_000));
      const query = { sandboxId: source.sandboxId, kind: "logs", sinceUs: us(1), untilUs: us(4) } as const;
      const first = await store.chunks.list({ ...query, limit: 3 });
      expect(first.map((chunk) => chunk.lastUs)).toEqual([us(4), us(3), us(2)]);
      const rest = await store.chunks.list({ ...query, limit: 3, after: first.at(-1) });
      expect(rest.map((chunk) => chunk.lastUs)).toEqual([us(1)]);
      const stderr = await store.chunks.list({ ...query, stream: "stderr", limit: 10 });
      expect(stderr.map((chunk) => chunk.lastUs)).toEqual([us(3), us(1)]);
    });
  });
}
