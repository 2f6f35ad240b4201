import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { newId } from "@sandgate/kit/base/ids";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import { WorkspacePurgedSchema } from "@sandgate/proto/telemetry/v1/telemetry_events";
import { describe, expect, test } from "vitest";
import type { Source } from "../domain/batches.ts";
import { purgeLimits } from "../domain/removals.ts";
import { workspacePurged } from "../events.ts";
import { lineAt, startMs, useStore } from "./store.fixture.ts";
import type { TelemetryStore } from "./store.ts";

/** What every store must remove of a deleted workspace. `open` opens an empty one. */
export function describePurges(name: string, open: () => Promise<TelemetryStore>): void {
  describe(`purges on ${name}`, () => {
    const fixture = useStore(open);
    const { append, linesOf } = fixture;

    test("a purged workspace has nothing left, accepts nothing, and is announced once per purge", async () => {
      const { store, source } = fixture;
      const other: Source = { ...source, sandboxId: newId(), workspaceId: newId() };
      await append("", "a", [lineAt(0, "kept")], { source: other });
      for (let s = 0; s < 3; s += 1) {
        const each: Source = { ...source, sandboxId: newId() };
        for (let i = 0; i < 40; i += 1) {
          await append(i ? `${i - 1}` : "", `${i}`, [lineAt(i, "x".repeat(65_536))], { source: each });
        }
      }
      const { workspaceId } = source;
      expect(await store.purges.listWorkspaces({ limit: 10 })).toEqual([workspaceId, other.workspaceId].sort());
      await store.purges.beginPurge(workspaceId, new Date(startMs));
      await expect(append("", "a", [lineAt(0, "late")])).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });
      expect(await store.purges.listOpenPurges()).toEqual([workspaceId]);
      expect(await store.purges.listWorkspaces({ limit: 10 })).toEqual([other.workspaceId]);
      // So small that no sandbox's chunks are a single batch.
      const limits = { sandboxes: 2, chunks: 30, textBytes: 1024 * 1024 };
      let batches = 1;
      while (await store.retention.purgeBatch(workspaceId, limits)) batches += 1;
      expect(batches).toBeGreaterThan(7);
      expect(await store.retention.purgeBatch(workspaceId, limits)).toBe(false);
      const at = new Date(startMs + 1);
      await store.purges.completePurge(workspaceId, at, [workspacePurged(workspaceId, at)]);
      expect(await store.purges.listOpenPurges()).toEqual([]);
      await expect(append("", "a", [lineAt(0, "late")])).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });

      const [unsent] = await store.outbox.unsent(10);
      const event = unsent && fromBinary(EventSchema, unsent.bytes);
      expect(event).toMatchObject({
        subject: "sandgate.telemetry.workspace.workspace_purged.v1",
        entityId: workspaceId,
      });
      expect(event?.payload && anyUnpack(event.payload, WorkspacePurgedSchema)).toMatchObject({ workspaceId });
      expect(await linesOf(other.sandboxId)).toEqual(["kept"]);

      await store.purges.beginPurge(workspaceId, new Date(startMs + 2));
      expect(await store.purges.listOpenPurges()).toEqual([workspaceId]);
    });

    test("a purge removes the small chunks of many sandboxes in one transaction", async () => {
      const { store, source } = fixture;
      const sandboxes = Array.from({ length: 6 }, () => newId());
      for (const sandboxId of sandboxes) {
        await append("", "a", [lineAt(0, "line")], { source: { ...source, sandboxId } });
      }
      await store.purges.beginPurge(source.workspaceId, new Date());
      expect(await store.retention.purgeBatch(source.workspaceId, purgeLimits)).toBe(false);
      for (const sandboxId of sandboxes) {
        expect(await store.sources.findSandbox(sandboxId)).toBeUndefined();
        expect(await linesOf(sandboxId)).toEqual([]);
      }
    });

    test("an unknown workspace can be purged too", async () => {
      const { store, source } = fixture;
      await store.purges.beginPurge(source.workspaceId, new Date());
      expect(await store.retention.purgeBatch(source.workspaceId, purgeLimits)).toBe(false);
      await expect(append("", "a", [])).rejects.toMatchObject({ reason: "WORKSPACE_NOT_FOUND" });
    });
  });
}
