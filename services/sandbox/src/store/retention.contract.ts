import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Quotas } from "../domain/quota.ts";
import { beginStop, completeStop, recordStarted, type Sandbox } from "../domain/sandbox.ts";
import { workspacePurged } from "../events.ts";
import { createSandbox, endSandbox, now, reasonOf, sandboxOf } from "./store.fixture.ts";
import type { SandboxStore } from "./store.ts";

/** What every adapter of `UnfinishedSandboxes`, `Retention` and purges must do. `open` gives an empty store. */
export function describeRetention(name: string, open: () => Promise<SandboxStore>): void {
  describe(`unfinished and ended sandboxes on ${name}`, () => {
    let store: SandboxStore;
    let workspaceId: string;
    const create = (sandbox: Sandbox, quotas?: Partial<Quotas>) => createSandbox(store, sandbox, quotas);
    const end = (sandbox: Sandbox) => endSandbox(store, sandbox);

    beforeEach(async () => {
      store = await open();
      workspaceId = newId();
    });
    afterEach(() => store.close());

    test("lists as unfinished what is live or not cleaned", async () => {
      const live = await create(sandboxOf({ workspaceId }));
      const ended = await end(await create(sandboxOf({ workspaceId })));
      await store.unfinished.markCleaned(live.id, now());
      const at = now();
      const running = recordStarted(live, { createdAt: at, startedAt: at }, at);
      const expiring = { ...running, expiresAt: at, pinnedReference: "sha256:1" };
      expect(await store.sandboxes.update(expiring, [])).toBe(true);
      expect(await store.unfinished.list({ limit: 10 })).toEqual([
        { id: live.id, state: "provisioning", startedAt: at, expiresAt: at, pinnedReference: "sha256:1" },
        { id: ended.id, state: "failed" },
      ]);
      expect((await store.unfinished.list({ limit: 10, afterId: live.id })).map(({ id }) => id)).toEqual([ended.id]);
      await store.unfinished.markCleaned(ended.id, now());
      expect((await store.unfinished.list({ limit: 10 })).map((sandbox) => sandbox.id)).toEqual([live.id]);
      expect((await store.sandboxes.get(ended.id))?.cleanedAt).toEqual(now());
      expect(await store.unfinished.countByState()).toEqual({ provisioning: 1 });
    });

    test("purges a workspace: later creates are refused, records are deleted, the event is staged", async () => {
      const live = await create(sandboxOf({ workspaceId }));
      const kept = await create(sandboxOf({ workspaceId: newId() }));
      await store.purges.beginPurge(workspaceId, now());
      expect(await reasonOf(create(sandboxOf({ workspaceId })))).toBe("WORKSPACE_FORBIDDEN");
      expect(await store.purges.listOpenPurges()).toEqual([workspaceId]);
      expect(await store.purges.listWorkspaces({ limit: 10 })).toEqual([kept.workspaceId]);
      expect((await store.retention.listUncleaned(workspaceId, 10)).map((sandbox) => sandbox.id)).toEqual([live.id]);
      expect(await store.retention.deleteCleaned(workspaceId, 10)).toBe(0);
      const stopping = beginStop(live, "workspace_deleted", now());
      await store.sandboxes.update(stopping, []);
      await store.sandboxes.update(completeStop(stopping, {}, now()), []);
      await store.unfinished.markCleaned(live.id, now());
      expect(await store.retention.deleteCleaned(workspaceId, 10)).toBe(1);
      await store.purges.completePurge(workspaceId, now(), [workspacePurged(workspaceId, now())]);
      expect(await store.purges.listOpenPurges()).toEqual([]);
      expect(await store.sandboxes.get(live.id)).toBeUndefined();
      expect(await store.sandboxes.get(kept.id)).toEqual(kept);
      // Announced again: purged again, and answered again.
      await store.purges.beginPurge(workspaceId, now());
      expect(await store.purges.listOpenPurges()).toEqual([workspaceId]);
    });

    test("lists what is live, whatever waits for its cleaning, and what is not cleaned", async () => {
      const ended = await end(await create(sandboxOf({ workspaceId })));
      const stopping = beginStop(await create(sandboxOf({ workspaceId })), "stopped_by_user", now());
      await store.sandboxes.update(stopping, []);
      const live = await create(sandboxOf({ workspaceId }));
      await create(sandboxOf({ workspaceId: newId() }));
      expect(await store.retention.listLive(workspaceId, 1)).toEqual([live]);
      expect(await store.retention.listLive(workspaceId, 10)).toEqual([live]);
      const uncleaned = await store.retention.listUncleaned(workspaceId, 10);
      expect(uncleaned.map(({ id }) => id).toSorted()).toEqual([ended.id, stopping.id, live.id].toSorted());
    });

    test("deletes records that ended long ago, and only cleaned ones", async () => {
      const old = await end(await create(sandboxOf({ workspaceId })));
      const uncleaned = await end(await create(sandboxOf({ workspaceId })));
      const live = await create(sandboxOf({ workspaceId }));
      await store.unfinished.markCleaned(old.id, now());
      expect(await store.retention.deleteEndedBefore(new Date(now().getTime() + 1), 10)).toBe(1);
      expect(await store.sandboxes.get(old.id)).toBeUndefined();
      expect(await store.sandboxes.get(uncleaned.id)).toBeDefined();
      expect(await store.sandboxes.get(live.id)).toBeDefined();
    });
  });
}
