import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  acceptSandbox,
  becomeReady,
  beginStop,
  completeStop,
  fail,
  recordStarted,
  type Sandbox,
  type SandboxState,
} from "../domain/sandbox.ts";
import { stageProvisioned, stagePurged } from "../events.ts";
import type { InstallationFilter, SandboxStore } from "./store.ts";

const noQuota = { maxSandboxes: 0, maxMemoryMb: 0 };
const unlimited = { workspace: noQuota, user: noQuota, installation: noQuota };
const call = { requestId: "r1", service: "facade", signal: new AbortController().signal, timeoutMs: () => undefined };
let clock = Date.UTC(2026, 0, 1);

function sandboxOf(o: {
  workspaceId: string;
  name?: string;
  labels?: Record<string, string>;
  memoryMb?: number;
  createdBy?: string;
}): Sandbox {
  clock += 1000;
  const id = newId();
  return acceptSandbox({
    id,
    name: o.name ?? `n-${id}`,
    workspaceId: o.workspaceId,
    image: {
      imageId: "i1",
      reference: "registry.example/app:1",
      registryId: "",
      isDefault: false,
      memoryMb: o.memoryMb ?? 256,
    },
    labels: o.labels ?? {},
    createdBy: o.createdBy ?? "u1",
    now: new Date(clock),
  });
}

async function reasonOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return error instanceof DomainError ? error.reason : `no DomainError: ${String(error)}`;
}

/** What every adapter of the sandbox store must do. `open` gives an empty store of its own to each test. */
export function describeSandboxStore(name: string, open: () => Promise<SandboxStore>): void {
  describe(`sandbox store on ${name}`, () => {
    let store: SandboxStore;
    let workspaceId: string;
    const now = () => new Date(clock);
    const create = async (sandbox: Sandbox, workspace = noQuota, installation = noQuota) => {
      const quotas = { ...unlimited, workspace, installation };
      await store.create(sandbox, undefined, quotas, [stageProvisioned(sandbox, call)], undefined);
      return sandbox;
    };
    const end = async (sandbox: Sandbox) => {
      const failed = fail(sandbox, { reason: "exited", message: "over", exitCode: 1 }, now());
      expect(await store.update(failed, [])).toBe(true);
      return failed;
    };

    beforeEach(async () => {
      store = await open();
      workspaceId = newId();
    });
    afterEach(() => store.close());

    test("keeps the installation's id", async () => {
      const id = await store.installationId();
      expect(await store.installationId()).toBe(id);
    });

    test("returns what was stored, including dates and labels that look like dates", async () => {
      const sandbox = await create(
        sandboxOf({ workspaceId, labels: { createdAt: "2020-01-01T00:00:00.000Z", at: "x" } }),
      );
      expect(await store.get(sandbox.id)).toEqual(sandbox);
      const ready = becomeReady(sandbox, now());
      expect(await store.update(ready, [])).toBe(true);
      expect(await store.find(workspaceId, sandbox.name)).toEqual(ready);
      expect(await store.outbox.unsent(10)).toHaveLength(1);
    });

    test("accepts one of two concurrent changes of a version", async () => {
      const sandbox = await create(sandboxOf({ workspaceId }));
      const outcomes = await Promise.all([
        store.update(becomeReady(sandbox, now()), []),
        store.update(beginStop(sandbox, "stopped_by_user", now()), []),
      ]);
      expect(outcomes.sort()).toEqual([false, true]);
    });

    test("reserves a name while live, and finds the live sandbox before newer ended ones", async () => {
      const first = await create(sandboxOf({ workspaceId, name: "web" }));
      expect(await reasonOf(create(sandboxOf({ workspaceId, name: "web" })))).toBe("SANDBOX_NAME_CONFLICT");
      await create(sandboxOf({ workspaceId: newId(), name: "web" }));
      const ended = await end(first);
      expect((await store.find(workspaceId, "web"))?.id).toBe(ended.id);
      const second = await create(sandboxOf({ workspaceId, name: "web" }));
      expect((await store.find(workspaceId, "web"))?.id).toBe(second.id);
      await end(second);
      expect((await store.find(workspaceId, "web"))?.id).toBe(second.id);
    });

    test("never finds another workspace's sandbox", async () => {
      const sandbox = await create(sandboxOf({ workspaceId, name: "mine" }));
      const other = newId();
      expect(await store.find(other, sandbox.id)).toBeUndefined();
      expect(await store.find(other, "mine")).toBeUndefined();
      expect(await store.list(other, { states: [], labels: {} }, { limit: 10 })).toEqual([]);
    });

    test("lists the sandboxes of all workspaces, of one, or of a user, newest first", async () => {
      const [ann, bob] = [newId(), newId()];
      const elsewhere = newId();
      const first = await create(sandboxOf({ workspaceId, createdBy: ann }));
      const second = await create(sandboxOf({ workspaceId: elsewhere, createdBy: ann }));
      const third = await end(await create(sandboxOf({ workspaceId, createdBy: bob })));
      const any = { states: [], workspaceId: undefined, createdBy: undefined };
      const list = (filter: Partial<InstallationFilter>, limit = 10, after?: Sandbox) =>
        store.listAll({ ...any, ...filter }, { limit, after });
      expect(await list({})).toEqual([third, second, first]);
      expect(await list({}, 2)).toEqual([third, second]);
      expect(await list({}, 2, second)).toEqual([first]);
      expect(await list({ workspaceId })).toEqual([third, first]);
      expect(await list({ createdBy: ann })).toEqual([second, first]);
      expect(await list({ createdBy: ann, workspaceId })).toEqual([first]);
      expect(await list({ states: ["failed", "ready"] })).toEqual([third]);
      expect(await list({ states: ["failed"], createdBy: ann })).toEqual([]);
    });

    test("stores nothing for a caller that gives up before its turn, and says so", async () => {
      const caller = new AbortController();
      const createFor = (sandbox: Sandbox) => store.create(sandbox, undefined, unlimited, [], undefined, caller.signal);
      const waiting = Array.from({ length: 10 }, () => sandboxOf({ workspaceId }));
      const created = waiting.map((sandbox, index) => createFor(sandbox).finally(() => index === 0 && caller.abort()));
      const outcomes = await Promise.allSettled(created);
      const stored = await Promise.all(waiting.map(({ id }) => store.get(id)));
      expect(stored.map((each) => each !== undefined)).toEqual(outcomes.map(({ status }) => status === "fulfilled"));
      // SQLite commits them as a group.
      if (name === "MongoDB") expect(outcomes.at(-1)).toEqual({ status: "rejected", reason: caller.signal.reason });
      const late = sandboxOf({ workspaceId });
      await expect(createFor(late)).rejects.toBe(caller.signal.reason);
      expect(await store.get(late.id)).toBeUndefined();
    });

    test("enforces the quotas of number and memory, and frees what has ended", async () => {
      const quota = { maxSandboxes: 2, maxMemoryMb: 1000 };
      const first = await create(sandboxOf({ workspaceId, memoryMb: 400 }), quota);
      expect(await reasonOf(create(sandboxOf({ workspaceId, memoryMb: 601 }), quota))).toBe("PROVISIONING_FAILED");
      await create(sandboxOf({ workspaceId, memoryMb: 600 }), quota);
      expect(await reasonOf(create(sandboxOf({ workspaceId, memoryMb: 256 }), quota))).toBe("PROVISIONING_FAILED");
      await end(first);
      await create(sandboxOf({ workspaceId, memoryMb: 400 }), quota);
      expect(await reasonOf(create(sandboxOf({ workspaceId, memoryMb: 1 }), quota))).toBe("PROVISIONING_FAILED");
    });

    test("enforces the installation's quotas over all workspaces, and frees what has ended", async () => {
      const quota = { maxSandboxes: 3, maxMemoryMb: 1000 };
      const elsewhere = newId();
      const refused = (memoryMb: number, workspaceId = newId()) =>
        expect(create(sandboxOf({ workspaceId, memoryMb }), noQuota, quota)).rejects.toMatchObject({
          reason: "PROVISIONING_FAILED",
          hint: expect.stringContaining("The installation is full"),
        });
      // Made while there was no limit: they count all the same.
      const first = await create(sandboxOf({ workspaceId, memoryMb: 300 }));
      await create(sandboxOf({ workspaceId: elsewhere, memoryMb: 300 }));
      await refused(401);
      await refused(401, workspaceId);
      const third = await create(sandboxOf({ workspaceId: newId(), memoryMb: 400 }), noQuota, quota);
      await refused(0);
      await end(third);
      await refused(401);
      await create(sandboxOf({ workspaceId: elsewhere, memoryMb: 400 }), noQuota, quota);
      await store.update(beginStop(first, "stopped_by_user", now()), []);
      await refused(0);
    });

    test("enforces the installation's quota against concurrent creates in many workspaces", async () => {
      const quota = { maxSandboxes: 3, maxMemoryMb: 0 };
      await create(sandboxOf({ workspaceId }));
      const outcomes = await Promise.allSettled(
        Array.from({ length: 10 }, () => create(sandboxOf({ workspaceId: newId() }), noQuota, quota)),
      );
      expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
      expect(await store.countByState()).toEqual({ provisioning: 3 });
    });

    describe("a user's quota", () => {
      const quota = { maxSandboxes: 3, maxMemoryMb: 1000 };
      const ann = { userId: "ann", since: 1 };
      const bob = { userId: "bob", since: 5 };
      const createFor = async (
        charge: { userId: string; since: number } | undefined,
        workspaceId: string,
        memoryMb = 0,
      ) => {
        const sandbox = sandboxOf({ workspaceId, memoryMb });
        await store.create(sandbox, charge, { ...unlimited, user: quota }, [], undefined);
        return sandbox;
      };
      const refused = (...given: Parameters<typeof createFor>) =>
        expect(createFor(...given)).rejects.toMatchObject({
          reason: "PROVISIONING_FAILED",
          hint: expect.stringContaining("A user's workspaces may hold"),
        });

      test("holds over all workspaces that are charged to them, and frees what has ended", async () => {
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
        await Promise.all(workspaces.map((id) => store.chargeWorkspace(id, ann)));
        // Without a charge creates don't wait for each other in this process, as those of two replicas don't.
        const outcomes = await Promise.allSettled(workspaces.map((id) => createFor(undefined, id)));
        expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
        expect(await store.countByState()).toEqual({ provisioning: 3 });
      });

      test("moves with a workspace and all that it holds, whatever order the changes come in", async () => {
        for (const _ of [1, 2, 3]) await createFor(ann, workspaceId);
        await refused(ann, newId());
        await store.chargeWorkspace(workspaceId, bob);
        await store.chargeWorkspace(workspaceId, bob);
        // Heard of late, and asked for before it was taken over.
        await store.chargeWorkspace(workspaceId, ann);
        await refused(ann, workspaceId);
        await refused(bob, newId());
        for (const _ of [1, 2, 3]) await createFor(ann, newId());
        await store.chargeWorkspace(workspaceId, { userId: "ann", since: 6 });
        await createFor(bob, newId());
        await refused({ userId: "ann", since: 6 }, workspaceId);
      });

      test("is charged with what a workspace held before anybody knew whose it is", async () => {
        const old = newId();
        for (const _ of [1, 2, 3, 4]) await createFor(undefined, workspaceId);
        const ended = await createFor(undefined, newId());
        await end(ended);
        await createFor(ann, newId());
        expect(await store.listUncharged({ limit: 10 })).toEqual([workspaceId]);
        expect(await store.listUncharged({ limit: 10, afterId: workspaceId })).toEqual([]);
        await store.chargeWorkspace(workspaceId, ann);
        expect(await store.listUncharged({ limit: 10 })).toEqual([]);
        await refused(ann, newId());
        // Known before it holds anything.
        await store.chargeWorkspace(old, bob);
        await refused(undefined, old, 1001);
      });
    });

    test("enforces the quota against concurrent creates", async () => {
      const quota = { maxSandboxes: 3, maxMemoryMb: 0 };
      const outcomes = await Promise.allSettled(
        Array.from({ length: 10 }, () => create(sandboxOf({ workspaceId }), quota)),
      );
      expect(outcomes.filter((outcome) => outcome.status === "fulfilled")).toHaveLength(3);
    });

    test("lists newest first, by page, state and label", async () => {
      const all: Sandbox[] = [];
      for (let i = 0; i < 5; i++) {
        all.push(await create(sandboxOf({ workspaceId, labels: { parity: i % 2 ? "odd" : "even", "a.b/c": "1" } })));
      }
      const [first, , third] = all;
      if (!first || !third) throw new Error("five were created");
      await end(first);
      const ids = (sandboxes: Sandbox[]) => sandboxes.map((sandbox) => sandbox.id);
      const newestFirst = ids(all).reverse();
      expect(ids(await store.list(workspaceId, { states: [], labels: {} }, { limit: 10 }))).toEqual(newestFirst);
      await create(sandboxOf({ workspaceId }));
      const page = await store.list(
        workspaceId,
        { states: [], labels: {} },
        { limit: 2, after: { createdAt: third.createdAt, id: third.id } },
      );
      expect(ids(page)).toEqual(newestFirst.slice(3));
      expect(ids(await store.list(workspaceId, { states: ["failed"], labels: {} }, { limit: 10 }))).toEqual([first.id]);
      const even = await store.list(
        workspaceId,
        { states: [], labels: { parity: "even", "a.b/c": "1" } },
        { limit: 10 },
      );
      expect(ids(even)).toEqual([newestFirst[0], newestFirst[2], newestFirst[4]]);
    });

    test("lists by state and label what has changed since, and several states in one order", async () => {
      const [oldest, middle, newest] = [
        await create(sandboxOf({ workspaceId, labels: { kind: "a", only: "oldest" } })),
        await create(sandboxOf({ workspaceId, labels: { kind: "a", only: "middle" } })),
        await create(sandboxOf({ workspaceId, labels: { kind: "a" } })),
      ];
      await create(sandboxOf({ workspaceId: newId(), labels: { kind: "a" } }));
      const list = async (states: SandboxState[], labels: Record<string, string>, limit = 10) =>
        (await store.list(workspaceId, { states, labels }, { limit })).map(({ id }) => id);
      await store.update(becomeReady(newest, now()), []);
      await end(oldest);
      expect(await list(["provisioning"], { kind: "a" })).toEqual([middle.id]);
      expect(await list(["failed"], { kind: "a", only: "oldest" })).toEqual([oldest.id]);
      expect(await list(["ready"], { kind: "a", only: "oldest" })).toEqual([]);
      expect(await list(["failed", "provisioning", "ready", "failed"], {})).toEqual([newest.id, middle.id, oldest.id]);
      expect(await list(["provisioning", "failed"], { kind: "a" })).toEqual([middle.id, oldest.id]);
      expect(await list(["failed", "ready"], {}, 1)).toEqual([newest.id]);
      expect(await list([], { kind: "b" })).toEqual([]);
      await store.markCleaned(oldest.id, now());
      expect(await list([], { only: "oldest" })).toEqual([oldest.id]);
      expect(await store.deleteCleaned(workspaceId, 10)).toBe(1);
      expect(await list([], { only: "oldest" })).toEqual([]);
      expect(await list([], { kind: "a" })).toEqual([newest.id, middle.id]);
    });

    test("lists as unfinished what is live or not cleaned", async () => {
      const live = await create(sandboxOf({ workspaceId }));
      const ended = await end(await create(sandboxOf({ workspaceId })));
      await store.markCleaned(live.id, now());
      const at = now();
      const running = recordStarted(live, { createdAt: at, startedAt: at }, at);
      const expiring = { ...running, expiresAt: at, pinnedReference: "sha256:1" };
      expect(await store.update(expiring, [])).toBe(true);
      expect(await store.listUnfinished({ limit: 10 })).toEqual([
        { id: live.id, state: "provisioning", startedAt: at, expiresAt: at, pinnedReference: "sha256:1" },
        { id: ended.id, state: "failed" },
      ]);
      expect((await store.listUnfinished({ limit: 10, afterId: live.id })).map(({ id }) => id)).toEqual([ended.id]);
      await store.markCleaned(ended.id, now());
      expect((await store.listUnfinished({ limit: 10 })).map((sandbox) => sandbox.id)).toEqual([live.id]);
      expect((await store.get(ended.id))?.cleanedAt).toEqual(now());
      expect(await store.countByState()).toEqual({ provisioning: 1 });
    });

    test("purges a workspace: later creates are refused, records are deleted, the event is staged", async () => {
      const live = await create(sandboxOf({ workspaceId }));
      const kept = await create(sandboxOf({ workspaceId: newId() }));
      await store.beginPurge(workspaceId, now());
      expect(await reasonOf(create(sandboxOf({ workspaceId })))).toBe("WORKSPACE_FORBIDDEN");
      expect(await store.listOpenPurges()).toEqual([workspaceId]);
      expect(await store.listWorkspaces({ limit: 10 })).toEqual([kept.workspaceId]);
      expect((await store.listUncleaned(workspaceId, 10)).map((sandbox) => sandbox.id)).toEqual([live.id]);
      expect(await store.deleteCleaned(workspaceId, 10)).toBe(0);
      const stopping = beginStop(live, "workspace_deleted", now());
      await store.update(stopping, []);
      await store.update(completeStop(stopping, {}, now()), []);
      await store.markCleaned(live.id, now());
      expect(await store.deleteCleaned(workspaceId, 10)).toBe(1);
      await store.completePurge(workspaceId, now(), [stagePurged(workspaceId, now())]);
      expect(await store.listOpenPurges()).toEqual([]);
      expect(await store.get(live.id)).toBeUndefined();
      expect(await store.get(kept.id)).toEqual(kept);
      // Announced again: purged again, and answered again.
      await store.beginPurge(workspaceId, now());
      expect(await store.listOpenPurges()).toEqual([workspaceId]);
    });

    test("lists what is live, whatever waits for its cleaning, and what is not cleaned", async () => {
      const ended = await end(await create(sandboxOf({ workspaceId })));
      const stopping = beginStop(await create(sandboxOf({ workspaceId })), "stopped_by_user", now());
      await store.update(stopping, []);
      const live = await create(sandboxOf({ workspaceId }));
      await create(sandboxOf({ workspaceId: newId() }));
      expect(await store.listLive(workspaceId, 1)).toEqual([live]);
      expect(await store.listLive(workspaceId, 10)).toEqual([live]);
      const uncleaned = await store.listUncleaned(workspaceId, 10);
      expect(uncleaned.map(({ id }) => id).toSorted()).toEqual([ended.id, stopping.id, live.id].toSorted());
    });

    test("deletes records that ended long ago, and only cleaned ones", async () => {
      const old = await end(await create(sandboxOf({ workspaceId })));
      const uncleaned = await end(await create(sandboxOf({ workspaceId })));
      const live = await create(sandboxOf({ workspaceId }));
      await store.markCleaned(old.id, now());
      expect(await store.deleteEndedBefore(new Date(clock + 1), 10)).toBe(1);
      expect(await store.get(old.id)).toBeUndefined();
      expect(await store.get(uncleaned.id)).toBeDefined();
      expect(await store.get(live.id)).toBeDefined();
    });

    test("keeps the last use of each image until it is forgotten", async () => {
      const names = ["127.0.0.1:5080/a@sha256:aa", "127.0.0.1:5080/b@sha256:bb"];
      for (const [name, seconds] of [
        [names[0], 10],
        [names[1], 20],
        [names[0], 30],
        [names[0], 5],
      ] as const) {
        await store.recordImageUse({ name: name ?? "", at: new Date(seconds * 1000) });
      }
      const uses = () =>
        store.listImageUses().then((all) => all.toSorted((one, other) => one.name.localeCompare(other.name)));
      expect(await uses()).toEqual([
        { name: names[0], at: new Date(30_000) },
        { name: names[1], at: new Date(20_000) },
      ]);
      await store.forgetImageUses([names[0] ?? "", "other"]);
      expect(await uses()).toEqual([{ name: names[1], at: new Date(20_000) }]);
    });

    test("refuses a second record of the same idempotency key", async () => {
      const record = { id: "c1", sealed: new Uint8Array([1, 2, 3]) };
      const first = sandboxOf({ workspaceId });
      await store.create(first, undefined, unlimited, [], record);
      const second = sandboxOf({ workspaceId });
      await expect(store.create(second, undefined, unlimited, [], record)).rejects.toMatchObject({
        name: "IdempotencyRecordExists",
      });
      expect(await store.get(second.id)).toBeUndefined();
      expect((await store.idempotency.find("c1"))?.sealed).toEqual(record.sealed);
    });
  });
}
