import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { QuotaOwner, Quotas } from "../domain/quota.ts";
import { beginStop, type Sandbox } from "../domain/sandbox.ts";
import { createSandbox, endSandbox, now, reasonOf, sandboxOf, unlimited, withoutQuotas } from "./store.fixture.ts";
import type { SandboxStore } from "./store.ts";

/** What every adapter must do about quotas and quota owners. `open` gives an empty store. */
export function describeQuotas(name: string, open: () => Promise<SandboxStore>): void {
  describe(`quotas on ${name}`, () => {
    let store: SandboxStore;
    let workspaceId: string;
    const create = (sandbox: Sandbox, quotas?: Partial<Quotas>) => createSandbox(store, sandbox, quotas);
    const end = (sandbox: Sandbox) => endSandbox(store, sandbox);

    beforeEach(async () => {
      store = await open();
      workspaceId = newId();
    });
    afterEach(() => store.close());

    test("enforces the quotas of number and memory, and frees what has ended", async () => {
      const quota = { maxSandboxes: 2, maxMemoryMb: 1000 };
      const first = await create(sandboxOf({ workspaceId, memoryMb: 400 }), { workspace: quota });
      expect(await reasonOf(create(sandboxOf({ workspaceId, memoryMb: 601 }), { workspace: quota }))).toBe(
        "PROVISIONING_FAILED",
      );
      await create(sandboxOf({ workspaceId, memoryMb: 600 }), { workspace: quota });
      expect(await reasonOf(create(sandboxOf({ workspaceId, memoryMb: 256 }), { workspace: quota }))).toBe(
        "PROVISIONING_FAILED",
      );
      await end(first);
      await create(sandboxOf({ workspaceId, memoryMb: 400 }), { workspace: quota });
      expect(await reasonOf(create(sandboxOf({ workspaceId, memoryMb: 1 }), { workspace: quota }))).toBe(
        "PROVISIONING_FAILED",
      );
    });

    test("enforces the quota against concurrent creates", async () => {
      const quota = { maxSandboxes: 3, maxMemoryMb: 0 };
      const outcomes = await Promise.allSettled(
        Array.from({ length: 10 }, () => create(sandboxOf({ workspaceId }), { workspace: quota })),
      );
      expect(outcomes.filter((outcome) => outcome.status === "fulfilled")).toHaveLength(3);
    });

    test("enforces the installation's quotas over all workspaces, and frees what has ended", async () => {
      const quota = { maxSandboxes: 3, maxMemoryMb: 1000 };
      const elsewhere = newId();
      const refused = (memoryMb: number, workspaceId = newId()) =>
        expect(create(sandboxOf({ workspaceId, memoryMb }), { installation: quota })).rejects.toMatchObject({
          reason: "PROVISIONING_FAILED",
          hint: expect.stringContaining("The installation is full"),
        });
      // Made while there was no limit: they count all the same.
      const first = await create(sandboxOf({ workspaceId, memoryMb: 300 }));
      await create(sandboxOf({ workspaceId: elsewhere, memoryMb: 300 }));
      await refused(401);
      await refused(401, workspaceId);
      const third = await create(sandboxOf({ workspaceId: newId(), memoryMb: 400 }), { installation: quota });
      await refused(0);
      await end(third);
      await refused(401);
      await create(sandboxOf({ workspaceId: elsewhere, memoryMb: 400 }), { installation: quota });
      await store.sandboxes.update(beginStop(first, "stopped_by_user", now()), []);
      await refused(0);
    });

    test("enforces the installation's quota against concurrent creates in many workspaces", async () => {
      const quota = { maxSandboxes: 3, maxMemoryMb: 0 };
      await create(sandboxOf({ workspaceId }));
      const outcomes = await Promise.allSettled(
        Array.from({ length: 10 }, () => create(sandboxOf({ workspaceId: newId() }), { installation: quota })),
      );
      expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
      expect(await store.unfinished.countByState()).toEqual({ provisioning: 3 });
    });

    describe("a user's quota", () => {
      const quota = { maxSandboxes: 3, maxMemoryMb: 1000 };
      const ann = { userId: "ann", since: 1 };
      const bob = { userId: "bob", since: 5 };
      const createFor = async (quotaOwner: QuotaOwner | undefined, workspaceId: string, memoryMb = 0) => {
        const sandbox = sandboxOf({ workspaceId, memoryMb });
        await store.sandboxes.create(sandbox, { ...withoutQuotas, quotaOwner, quotas: { ...unlimited, user: quota } });
        return sandbox;
      };
      const refused = (...given: Parameters<typeof createFor>) =>
        expect(createFor(...given)).rejects.toMatchObject({
          reason: "PROVISIONING_FAILED",
          hint: expect.stringContaining("A user's workspaces may hold"),
        });

      test("holds over all workspaces that have them as quota owner, and frees what has ended", async () => {
        const [other, third] = [newId(), newId()];
        const first = await createFor(ann, workspaceId, 300);
        await createFor(ann, other, 300);
        await refused(ann, other, 401);
        await refused(ann, workspaceId, 401);
        await createFor(bob, third, 1000);
        await createFor(ann, other, 400);
        await refused(ann, newId());
        await end(first);
        await refused(ann, other, 301);
        await createFor(ann, newId(), 300);
        await refused(ann, newId());
      });

      test("holds against concurrent creates in many workspaces", async () => {
        await createFor(ann, workspaceId);
        const workspaces = Array.from({ length: 10 }, newId);
        await Promise.all(workspaces.map((id) => store.quotaOwners.assign(id, ann)));
        // Without a quota owner creates don't wait for each other in this process, as those of two replicas don't.
        const outcomes = await Promise.allSettled(workspaces.map((id) => createFor(undefined, id)));
        expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
        expect(await store.unfinished.countByState()).toEqual({ provisioning: 3 });
      });

      test("moves with a workspace and all that it holds, whatever order the changes come in", async () => {
        for (const _ of [1, 2, 3]) await createFor(ann, workspaceId);
        await refused(ann, newId());
        await store.quotaOwners.assign(workspaceId, bob);
        await store.quotaOwners.assign(workspaceId, bob);
        // Heard of late, and asked for before it was taken over.
        await store.quotaOwners.assign(workspaceId, ann);
        await refused(ann, workspaceId);
        await refused(bob, newId());
        for (const _ of [1, 2, 3]) await createFor(ann, newId());
        await store.quotaOwners.assign(workspaceId, { userId: "ann", since: 6 });
        await createFor(bob, newId());
        await refused({ userId: "ann", since: 6 }, workspaceId);
      });

      test("counts what a workspace held before it had a quota owner", async () => {
        const old = newId();
        for (const _ of [1, 2, 3, 4]) await createFor(undefined, workspaceId);
        const ended = await createFor(undefined, newId());
        await end(ended);
        await createFor(ann, newId());
        await store.quotaOwners.assign(workspaceId, ann);
        await refused(ann, newId());
        // Known before it holds anything.
        await store.quotaOwners.assign(old, bob);
        await refused(undefined, old, 1001);
      });
    });
  });
}
