import { newId } from "@sandgate/kit/base/ids";
import { describe, expect, test } from "vitest";
import { isFinal, type Source } from "../domain/batches.ts";
import { encodeLogs, encodeMetrics } from "../domain/chunks.ts";
import { purgeLimits } from "../domain/removals.ts";
import { fromMillis } from "../domain/rows.ts";
import { isDrained } from "../usecases/await-drained.ts";
import { lineAt, longText, startMs, unlimited, useStore } from "./store.fixture.ts";
import type { TelemetryStore } from "./store.ts";

/** What every store of sources must do. `open` opens an empty one. */
export function describeSources(name: string, open: () => Promise<TelemetryStore>): void {
  describe(`sources on ${name}`, () => {
    const fixture = useStore(open);
    const { append, linesOf, samplesOf } = fixture;

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

    test("a batch whose caller has given up before its turn is not stored", async () => {
      const { store, source } = fixture;
      const batch = { source, fromCursor: "", toCursor: "a", chunk: undefined, final: false };
      const signal = AbortSignal.abort(new Error("gave up"));
      const appending = store.sources.append(batch, { quotas: unlimited, now: new Date(startMs), signal });
      await expect(appending).rejects.toThrow("gave up");
      expect(await store.sources.findSandbox(source.sandboxId)).toBeUndefined();
    });

    test("batches that come at once are stored in their order, and one that can't be is refused alone", async () => {
      const { store, source } = fixture;
      const sources = Array.from({ length: 50 }, () => fixture.sandboxOf(source.workspaceId));
      const foreign = fixture.sandboxOf(newId());
      await append("", "a", [lineAt(0, "foreign")], { source: foreign });
      const wrong = { ...foreign, workspaceId: source.workspaceId, containerId: "c2" };
      const chunks = await Promise.all(
        ["1", longText("2"), "late", "3"].map((line, i) => encodeLogs([lineAt(i, line)])),
      );
      const answers = await Promise.allSettled(
        [...sources, wrong].flatMap((each) =>
          ["", "a", "a", "b"].map((fromCursor, i) => {
            const toCursor = ["a", "b", "z", "c"][i] ?? "";
            const batch = { source: each, fromCursor, toCursor, chunk: chunks[i], final: i === 3 };
            return store.sources.append(batch, { quotas: unlimited, now: new Date(startMs) });
          }),
        ),
      );
      const outcomes = answers.map((each) => (each.status === "fulfilled" ? each.value.accepted : each.reason.reason));
      expect(outcomes).toEqual([...sources.flatMap(() => [true, true, false, true]), ...Array(4).fill("CONFLICT")]);
      for (const each of sources) {
        expect(await fixture.numbersOf(each)).toEqual([1, 2, 3]);
        expect(await store.sources.findSandbox(each.sandboxId)).toMatchObject({
          sequences: { logs: 3, metrics: 0 },
          sources: [{ cursor: "c", final: true }],
        });
      }
      expect(await fixture.linesOf(foreign.sandboxId)).toEqual(["foreign"]);
    });

    test("each source has a cursor of its own", async () => {
      const { store, source } = fixture;
      await append("", "a", [lineAt(0, "1")]);
      const second: Source = { ...source, containerId: "c2" };
      expect(await append("", "x", [lineAt(1, "2")], { source: second })).toMatchObject({ accepted: true });
      const metrics: Source = { ...source, kind: "metrics" };
      const chunk = await encodeMetrics([{ timeNs: fromMillis(startMs), cpuSeconds: 1.5, memoryBytes: 4096 }]);
      const batch = { source: metrics, fromCursor: "", toCursor: "m", chunk, final: false };
      expect(await store.sources.append(batch, { quotas: unlimited, now: new Date() })).toMatchObject({
        accepted: true,
      });
      expect(await linesOf()).toEqual(["1", "2"]);
      expect(await samplesOf()).toMatchObject([{ cpuSeconds: 1.5, memoryBytes: 4096, sequence: 1 }]);
      expect(await store.sources.findSandbox(source.sandboxId)).toMatchObject({ sequences: { logs: 2, metrics: 1 } });
    });

    test("a sandbox is final once all its sources are", async () => {
      const { store, source } = fixture;
      const find = () => store.sources.findSandbox(source.sandboxId);
      const isStoredFinal = async () => isFinal((await find()) ?? { sources: [] });
      expect(await find()).toBeUndefined();
      await append("", "a", []);
      await append("", "m", [], { source: { ...source, kind: "metrics" } });
      expect(await find()).toMatchObject({ workspaceId: source.workspaceId });
      expect(await isStoredFinal()).toBe(false);
      await append("a", "a", [], { final: true });
      expect(await isStoredFinal()).toBe(false);
      await append("m", "m", [], { final: true, source: { ...source, kind: "metrics" } });
      expect(await isStoredFinal()).toBe(true);
      expect((await find())?.sources).toHaveLength(2);
      expect((await find())?.sources).toEqual(
        expect.arrayContaining([
          { containerId: "c1", kind: "logs", cursor: "a", final: true },
          { containerId: "c1", kind: "metrics", cursor: "m", final: true },
        ]),
      );
    });

    test("a container is drained once its log was stored to its end, or its workspace was deleted", async () => {
      const { store, source } = fixture;
      const isContainerDrained = ({ containerId, ...sandbox }: Source) =>
        isDrained(store.sources, { ...sandbox, containerIds: [containerId] });
      expect(await isContainerDrained(source)).toBe(false);
      await append("", "a", [lineAt(0, "1")]);
      await append("", "m", [], { source: { ...source, kind: "metrics" }, final: true });
      expect(await isContainerDrained(source)).toBe(false);
      await append("a", "a", [], { final: true });
      expect(await isContainerDrained(source)).toBe(true);
      const second = { ...source, containerId: "c2" };
      await append("", "x", [lineAt(1, "2")], { source: second });
      expect(await isContainerDrained(second)).toBe(false);
      expect(await isContainerDrained(source)).toBe(true);
      await store.purges.beginPurge(source.workspaceId, new Date(startMs));
      expect(await isContainerDrained(second)).toBe(true);
    });

    test("a sandbox is drained once the logs of all its containers were stored to their ends", async () => {
      const { store, source } = fixture;
      const isSandboxDrained = () => isDrained(store.sources, source);
      expect(await isSandboxDrained()).toBe(false);
      await append("", "m", [], { source: { ...source, kind: "metrics" }, final: true });
      expect(await isSandboxDrained()).toBe(false);
      await append("", "a", [lineAt(0, "1")], { final: true });
      expect(await isSandboxDrained()).toBe(true);
      const second = { ...source, containerId: "c2" };
      await append("", "x", [lineAt(1, "2")], { source: second });
      expect(await isSandboxDrained()).toBe(false);
      await append("x", "x", [], { source: second, final: true });
      expect(await isSandboxDrained()).toBe(true);
    });

    test("a sandbox of a deleted workspace is drained, whether something of it is stored or not", async () => {
      const { store, source } = fixture;
      const unknown = { ...source, sandboxId: newId() };
      await append("", "a", [lineAt(0, "1")]);
      await store.purges.beginPurge(newId(), new Date(startMs));
      expect(await isDrained(store.sources, source)).toBe(false);
      expect(await isDrained(store.sources, unknown)).toBe(false);
      await store.purges.beginPurge(source.workspaceId, new Date(startMs));
      expect(await isDrained(store.sources, source)).toBe(true);
      expect(await isDrained(store.sources, unknown)).toBe(true);
      while (await store.retention.purgeBatch(source.workspaceId, purgeLimits));
      await store.purges.completePurge(source.workspaceId, new Date(startMs), []);
      expect(await isDrained(store.sources, source)).toBe(true);
    });

    test("a sandbox does not change its workspace", async () => {
      const { source } = fixture;
      await append("", "a", [lineAt(0, "1")]);
      const foreign = { ...source, workspaceId: newId(), containerId: "c2" };
      await expect(append("", "a", [lineAt(0, "x")], { source: foreign })).rejects.toMatchObject({
        reason: "CONFLICT",
      });
    });
  });
}
