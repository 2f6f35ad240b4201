import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Sandbox } from "../domain/sandbox.ts";
import { createSandbox, endSandbox, now, sandboxOf } from "./store.fixture.ts";
import type { SandboxStore } from "./store.ts";

/** What every adapter must do about the quotas of records and of failed attempts. `open` gives an empty store. */
export function describeRecordQuotas(name: string, open: () => Promise<SandboxStore>): void {
  describe(`record quotas on ${name}`, () => {
    let store: SandboxStore;
    let workspaceId: string;
    const bytes = sandboxOf({ workspaceId: "w" }).recordBytes ?? 0;
    const quotas = { maxRecordBytes: 3 * bytes };

    beforeEach(async () => {
      store = await open();
      workspaceId = newId();
    });
    afterEach(() => store.close());

    const create = (o: Partial<Parameters<typeof sandboxOf>[0]> = {}) =>
      createSandbox(store, sandboxOf({ workspaceId, ...o }), quotas);
    const clean = async (sandbox: Sandbox) => {
      const ended = await endSandbox(store, sandbox);
      await store.unfinished.markCleaned(ended.id, now());
      return ended;
    };
    const full = expect.objectContaining({
      reason: "PROVISIONING_FAILED",
      hint: expect.stringContaining("no record of an ended sandbox is left"),
    });
    const idsOf = async (labels = {}) =>
      (await store.sandboxes.list(workspaceId, { states: [], labels }, { limit: 100 })).map(({ id }) => id);

    test("the records that were cleaned first make room for a new one, and no others", async () => {
      const live = await create();
      const first = await clean(await create({ labels: { purpose: "test" } }));
      const elsewhere = await clean(await createSandbox(store, sandboxOf({ workspaceId: newId() }), quotas));
      // With its label that one counts for more than a third.
      const uncleaned = await endSandbox(store, await create());
      expect(await store.sandboxes.get(first.id)).toBeUndefined();
      const newest = await create();
      expect(await idsOf()).toEqual([newest.id, uncleaned.id, live.id]);
      expect(await idsOf({ purpose: "test" })).toEqual([]);
      expect(await store.sandboxes.get(elsewhere.id)).toBeDefined();
      // What has a container or may have one stays, so nothing is left to delete.
      await expect(create()).rejects.toEqual(full);
      expect(await idsOf()).toEqual([newest.id, uncleaned.id, live.id]);
      await store.unfinished.markCleaned(uncleaned.id, now());
      const last = await create();
      expect(await idsOf()).toEqual([last.id, newest.id, live.id]);
    });

    test("what is refused for another reason evicts nothing", async () => {
      const kept = await clean(await create());
      await create({ name: "web" });
      await create();
      await expect(create({ name: "web" })).rejects.toMatchObject({ reason: "SANDBOX_NAME_CONFLICT" });
      expect(await store.sandboxes.get(kept.id)).toBeDefined();
    });

    test("concurrent creates stay within the quota together", async () => {
      for (const _ of [1, 2, 3]) await clean(await create());
      const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => create()));
      expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(3);
      expect(await idsOf()).toHaveLength(3);
    });

    test("records that are deleted make room", async () => {
      for (const _ of [1, 2, 3]) await create();
      await expect(create()).rejects.toEqual(full);
      for (const id of await idsOf()) {
        const sandbox = await store.sandboxes.get(id);
        if (sandbox) await clean(sandbox);
      }
      expect(await store.retention.deleteEndedBefore(new Date(now().getTime() + 1), 2)).toBe(2);
      expect(await store.retention.deleteCleaned(workspaceId, 2)).toBe(1);
      for (const _ of [1, 2, 3]) await create();
      await expect(create()).rejects.toEqual(full);
    });

    test("records of an earlier version count for nothing, and go as others do", async () => {
      const { recordBytes: _, ...old } = sandboxOf({ workspaceId });
      await clean(await createSandbox(store, old, quotas));
      for (const _ of [1, 2, 3]) await clean(await create());
      expect(await idsOf()).toHaveLength(4);
      const newest = await create();
      expect(await idsOf()).toHaveLength(3);
      expect(await idsOf()).toContain(newest.id);
      expect(await store.sandboxes.get(old.id)).toBeUndefined();
    });

    test("failed attempts are counted for each workspace, and refuse its creates", async () => {
      const few = { maxFailuresPerHour: 2 };
      const attempt = (o: { workspaceId: string }) => createSandbox(store, sandboxOf(o), few);
      const neighbour = newId();
      for (const _ of [1, 2]) await endSandbox(store, await attempt({ workspaceId }));
      await endSandbox(store, await attempt({ workspaceId: neighbour }));
      await expect(attempt({ workspaceId })).rejects.toMatchObject({
        reason: "RATE_LIMITED",
        retryAfterSeconds: expect.any(Number),
      });
      await attempt({ workspaceId: neighbour });
      expect(await idsOf()).toHaveLength(2);
    });
  });
}
