import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { encodeLogs, encodeMetrics, type StoredChunk } from "../domain/chunks.ts";
import { fromMillis } from "../domain/rows.ts";
import { queryLogs, queryMetrics } from "./queries.ts";

const lastUs = Date.UTC(2026, 0, 1) * 1000;
const timeNs = fromMillis(lastUs / 1000);
const size = { rows: 10_000, bytes: 1_000_000, chunks: 1_000 };
const window = { sinceNs: 0n, untilNs: timeNs * 2n };
/** As many as the first list of the store. */
const firstList = 2;

const kinds = {
  logs: { encode: () => encodeLogs([{ timeNs, stream: "stdout", log: "x" }]), query: queryLogs },
  metrics: { encode: () => encodeMetrics([{ timeNs, cpuSeconds: 1, memoryBytes: 1 }]), query: queryMetrics },
} as const;

describe.each(["logs", "metrics"] as const)("a query of %s", (kind) => {
  /** Queries a store of many chunks; `onRead` is called for each that is read. */
  async function queryMany(signal: AbortSignal, onRead: (read: number) => void) {
    const { body } = await kinds[kind].encode();
    const calls = { read: 0, listed: 0 };
    const store = {
      async list({ limit }: { limit: number }): Promise<StoredChunk[]> {
        calls.listed += 1;
        return Array.from({ length: calls.listed > 50 ? 0 : limit }, () => ({
          firstSequence: 1,
          lastSequence: 1,
          lastUs,
          textBytes: 1,
          get body() {
            onRead(++calls.read);
            return body;
          },
        }));
      },
    };
    const query = { sandboxId: "s1", window, size, stream: undefined, signal };
    const end = await kinds[kind].query(store, query).catch((error: unknown) => error);
    expect(end).toBe(signal.reason);
    return calls;
  }

  test.each([
    { aborted: 1, listed: 1 },
    { aborted: firstList, listed: 1 },
    { aborted: firstList + 1, listed: 2 },
  ])("aborted at chunk $aborted reads no further one", async ({ aborted, listed }) => {
    const caller = new AbortController();
    const reason = new Error("The caller has gone");
    const calls = await queryMany(caller.signal, (read) => read === aborted && caller.abort(reason));
    expect(calls).toEqual({ read: aborted, listed });
  });

  test("aborted before reads nothing", async () => {
    expect(await queryMany(AbortSignal.abort(), () => {})).toEqual({ read: 0, listed: 0 });
  });

  test("gives way to an abort while it reads", async () => {
    const caller = new AbortController();
    const gone = turn().then(() => caller.abort());
    await queryMany(caller.signal, () => {});
    await gone;
  });
});
