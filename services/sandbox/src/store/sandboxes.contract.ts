import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Quotas } from "../domain/quota.ts";
import { becomeReady, beginStop, completeStop, fail, type Sandbox, type SandboxState } from "../domain/sandbox.ts";
import { sandboxUsed } from "../events.ts";
import type { InstallationFilter, SandboxFilter } from "./sandboxes.ts";
import { createSandbox, endSandbox, now, reasonOf, sandboxOf, unlimited, withoutQuotas } from "./store.fixture.ts";
import type { SandboxStore } from "./store.ts";

/** What every adapter of `Sandboxes` must do. `open` gives an empty store. */
export function describeSandboxes(name: string, open: () => Promise<SandboxStore>): void {
  describe(`sandboxes on ${name}`, () => {
    let store: SandboxStore;
    let workspaceId: string;
    const create = (sandbox: Sandbox, quotas?: Partial<Quotas>) => createSandbox(store, sandbox, quotas);
    const end = (sandbox: Sandbox) => endSandbox(store, sandbox);

    beforeEach(async () => {
      store = await open();
      workspaceId = newId();
    });
    afterEach(() => store.close());

    test("returns what was stored, including dates and labels that look like dates", async () => {
      const sandbox = await create(
        sandboxOf({ workspaceId, labels: { createdAt: "2020-01-01T00:00:00.000Z", at: "x" } }),
      );
      expect(await store.sandboxes.get(sandbox.id)).toEqual(sandbox);
      const ready = becomeReady(sandbox, now());
      expect(await store.sandboxes.update(ready, [])).toBe(true);
      expect(await store.sandboxes.find(workspaceId, sandbox.name)).toEqual(ready);
      expect(await store.outbox.unsent(10)).toHaveLength(1);
    });

    test("accepts one of two concurrent changes of a version", async () => {
      const sandbox = await create(sandboxOf({ workspaceId }));
      const outcomes = await Promise.all([
        store.sandboxes.update(becomeReady(sandbox, now()), []),
        store.sandboxes.update(beginStop(sandbox, "stopped_by_user", now()), []),
      ]);
      expect(outcomes.sort()).toEqual([false, true]);
    });

    test("reserves a name while live, and finds the live sandbox before newer ended ones", async () => {
      const first = await create(sandboxOf({ workspaceId, name: "web" }));
      expect(await reasonOf(create(sandboxOf({ workspaceId, name: "web" })))).toBe("SANDBOX_NAME_CONFLICT");
      await create(sandboxOf({ workspaceId: newId(), name: "web" }));
      const ended = await end(first);
      expect((await store.sandboxes.find(workspaceId, "web"))?.id).toBe(ended.id);
      const second = await create(sandboxOf({ workspaceId, name: "web" }));
      expect((await store.sandboxes.find(workspaceId, "web"))?.id).toBe(second.id);
      await end(second);
      expect((await store.sandboxes.find(workspaceId, "web"))?.id).toBe(second.id);
    });

    test("stores nothing for a caller that gives up before its turn, and says so", async () => {
      const caller = new AbortController();
      const createFor = (sandbox: Sandbox) => store.sandboxes.create(sandbox, withoutQuotas, caller.signal);
      const waiting = Array.from({ length: 10 }, () => sandboxOf({ workspaceId }));
      const created = waiting.map((sandbox, index) => createFor(sandbox).finally(() => index === 0 && caller.abort()));
      const outcomes = await Promise.allSettled(created);
      const stored = await Promise.all(waiting.map(({ id }) => store.sandboxes.get(id)));
      expect(stored.map((each) => each !== undefined)).toEqual(outcomes.map(({ status }) => status === "fulfilled"));
      // SQLite commits them as a group.
      if (name === "MongoDB") expect(outcomes.at(-1)).toEqual({ status: "rejected", reason: caller.signal.reason });
      const late = sandboxOf({ workspaceId });
      await expect(createFor(late)).rejects.toBe(caller.signal.reason);
      expect(await store.sandboxes.get(late.id)).toBeUndefined();
    });

    test("refuses a second record of the same idempotency key", async () => {
      const record = { id: "c1", sealed: new Uint8Array([1, 2, 3]), service: "sandbox", workspace: "", owner: "ann" };
      const first = sandboxOf({ workspaceId });
      await store.sandboxes.create(first, { ...withoutQuotas, record });
      const second = sandboxOf({ workspaceId });
      await expect(store.sandboxes.create(second, { ...withoutQuotas, record })).rejects.toMatchObject({
        name: "IdempotencyRecordExists",
      });
      expect(await store.sandboxes.get(second.id)).toBeUndefined();
      expect((await store.idempotency.find("c1"))?.sealed).toEqual(record.sealed);
    });

    test("never finds another workspace's sandbox", async () => {
      const sandbox = await create(sandboxOf({ workspaceId, name: "mine" }));
      const other = newId();
      expect(await store.sandboxes.find(other, sandbox.id)).toBeUndefined();
      expect(await store.sandboxes.find(other, "mine")).toBeUndefined();
      expect(await store.sandboxes.list(other, { states: [], labels: {} }, { limit: 10 })).toEqual([]);
    });

    test("lists the sandboxes of all workspaces, of one, or of a user, newest first", async () => {
      const [ann, bob] = [newId(), newId()];
      const elsewhere = newId();
      const first = await create(sandboxOf({ workspaceId, createdBy: ann }));
      const second = await create(sandboxOf({ workspaceId: elsewhere, createdBy: ann }));
      const third = await end(await create(sandboxOf({ workspaceId, createdBy: bob })));
      const any = { states: [], workspaceId: undefined, createdBy: undefined };
      const list = (filter: Partial<InstallationFilter>, limit = 10, after?: Sandbox) =>
        store.sandboxes.listAll({ ...any, ...filter }, { limit, after });
      expect(await list({})).toEqual([third, second, first]);
      expect(await list({}, 2)).toEqual([third, second]);
      expect(await list({}, 2, second)).toEqual([first]);
      expect(await list({ workspaceId })).toEqual([third, first]);
      expect(await list({ createdBy: ann })).toEqual([second, first]);
      expect(await list({ createdBy: ann, workspaceId })).toEqual([first]);
      expect(await list({ states: ["failed", "ready"] })).toEqual([third]);
      expect(await list({ states: ["failed"], createdBy: ann })).toEqual([]);
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
      expect(ids(await store.sandboxes.list(workspaceId, { states: [], labels: {} }, { limit: 10 }))).toEqual(
        newestFirst,
      );
      await create(sandboxOf({ workspaceId }));
      const page = await store.sandboxes.list(
        workspaceId,
        { states: [], labels: {} },
        { limit: 2, after: { createdAt: third.createdAt, id: third.id } },
      );
      expect(ids(page)).toEqual(newestFirst.slice(3));
      expect(ids(await store.sandboxes.list(workspaceId, { states: ["failed"], labels: {} }, { limit: 10 }))).toEqual([
        first.id,
      ]);
      const even = await store.sandboxes.list(
        workspaceId,
        { states: [], labels: { parity: "even", "a.b/c": "1" } },
        { limit: 10 },
      );
      expect(ids(even)).toEqual([newestFirst[0], newestFirst[2], newestFirst[4]]);
    });

    test("lists by the start of a name, with states, labels and pages", async () => {
      const make = (name: string, labels = {}) => create(sandboxOf({ workspaceId, name, labels }));
      const [first, second, third] = [await make("web-b"), await make("web-a", { tier: "1" }), await make("web")];
      for (const name of ["we", "wex", "we-b", "xweb"]) await make(name, { tier: "1" });
      await create(sandboxOf({ workspaceId: newId(), name: "web-b" }));
      await end(first);
      const list = async (namePrefix: string, more: Partial<SandboxFilter> = {}, limit = 10, after?: Sandbox) =>
        store.sandboxes
          .list(workspaceId, { states: [], labels: {}, namePrefix, ...more }, { limit, ...(after && { after }) })
          .then((found) => found.map(({ name }) => name));
      expect(await list("web")).toEqual(["web", "web-a", "web-b"]);
      expect(await list("web-")).toEqual(["web-a", "web-b"]);
      expect(await list("web-b")).toEqual(["web-b"]);
      expect(await list("web", {}, 2)).toEqual(["web", "web-a"]);
      expect(await list("web", {}, 2, second)).toEqual(["web-b"]);
      expect(await list("web", {}, 2, third)).toEqual(["web-a", "web-b"]);
      expect(await list("web", { states: ["failed", "ready"] })).toEqual(["web-b"]);
      expect(await list("web", { labels: { tier: "1" } })).toEqual(["web-a"]);
      expect(await list("web", { labels: { tier: "1" }, states: ["failed"] })).toEqual([]);
      expect(await list("é")).toEqual([]);
    });

    test("keeps the environment variables of a sandbox until it has ended", async () => {
      const sealedEnv = new Uint8Array([1, 200, 3]);
      const sandbox = sandboxOf({ workspaceId });
      await store.sandboxes.create(sandbox, { ...withoutQuotas, sealedEnv });
      const bare = await create(sandboxOf({ workspaceId }));
      expect(await store.sandboxes.findSealedEnv(sandbox.id)).toEqual(sealedEnv);
      expect(await store.sandboxes.findSealedEnv(bare.id)).toBeUndefined();
      const stopping = beginStop(sandbox, "stopped_by_user", now());
      await store.sandboxes.update(stopping, []);
      expect(await store.sandboxes.findSealedEnv(sandbox.id)).toEqual(sealedEnv);
      // A change that comes too late takes nothing away.
      expect(await store.sandboxes.update(fail(sandbox, { reason: "exited", message: "over" }, now()), [])).toBe(false);
      expect(await store.sandboxes.findSealedEnv(sandbox.id)).toEqual(sealedEnv);
      expect(await store.sandboxes.update(completeStop(stopping, {}, now()), [])).toBe(true);
      expect(await store.sandboxes.findSealedEnv(sandbox.id)).toBeUndefined();
      const refused = sandboxOf({ workspaceId });
      const quotas = { ...unlimited, workspace: { maxSandboxes: 1, maxMemoryMb: 0 } };
      await create(sandboxOf({ workspaceId }));
      await expect(store.sandboxes.create(refused, { quotas, events: [], sealedEnv })).rejects.toThrow();
      expect(await store.sandboxes.findSealedEnv(refused.id)).toBeUndefined();
    });

    test("seals environment variables anew with another key", async () => {
      const keyOf = (id: string) =>
        Buffer.concat([Buffer.from([1, id.length]), Buffer.from(id), Buffer.from("sealed")]);
      const sandbox = sandboxOf({ workspaceId });
      await store.sandboxes.create(sandbox, { ...withoutQuotas, sealedEnv: keyOf("old") });
      const column = store.sealed.columns.find(({ table }) => table === "envs");
      if (!column) throw new Error("the column is not named");
      const [row] = await store.sealed.listOthers(column, "new", 10, undefined);
      expect(row).toMatchObject({ id: sandbox.id, workspace: workspaceId });
      const change = { id: sandbox.id, before: keyOf("old"), after: keyOf("new") };
      expect(await store.sealed.replace(column, [change])).toEqual([sandbox.id]);
      expect(await store.sandboxes.findSealedEnv(sandbox.id)).toEqual(new Uint8Array(keyOf("new")));
      expect(await store.sealed.listOthers(column, "new", 10, undefined)).toEqual([]);
    });

    test("records uses and pulls without a new version, which no change of the record undoes", async () => {
      const before = await create(sandboxOf({ workspaceId, labels: { $set: "$name" } }));
      const [earlier, later] = [new Date(now().getTime() + 1), new Date(now().getTime() + 2)];
      const used = (at: Date) =>
        store.activity.recordUses([
          { sandboxId: newId(), at },
          { sandboxId: before.id, at },
        ]);
      await used(later);
      await used(earlier);
      await store.activity.recordPull(before.id, { downloadedBytes: 1, totalBytes: 5_000_000_000 });
      const activity = { lastUsedAt: later, pull: { downloadedBytes: 1, totalBytes: 5_000_000_000 } };
      expect(await store.sandboxes.get(before.id)).toEqual({ ...before, ...activity });
      const ready = becomeReady(before, now());
      expect(await store.sandboxes.update(ready, [])).toBe(true);
      expect(await store.sandboxes.get(before.id)).toEqual({ ...ready, ...activity });
      expect(await store.sandboxes.list(workspaceId, { states: [], labels: {} }, { limit: 1 })).toEqual([
        { ...ready, ...activity },
      ]);
      await used(new Date(later.getTime() + 1));
      expect((await store.sandboxes.get(before.id))?.lastUsedAt).toEqual(new Date(later.getTime() + 1));
      const [unfinished] = await store.unfinished.list({ limit: 1 });
      expect(unfinished).toMatchObject({ readyAt: ready.readyAt, lastUsedAt: new Date(later.getTime() + 1) });
    });

    test("stages events of uses once each, also when they are staged again with others", async () => {
      const used = () =>
        sandboxUsed(
          { requestId: "r1" },
          {
            id: newId(),
            workspaceId,
            sandboxId: newId(),
            action: "sandbox.exec",
            details: { program: "true" },
            outcome: "success",
            count: 1,
          },
        );
      const [first, second] = [used(), used()];
      await store.activity.stageUses([first]);
      await store.activity.stageUses([first, second]);
      await store.activity.stageUses([second]);
      const waiting = (await store.outbox.unsent(100)).filter(({ subject }) => subject === first.subject);
      expect(waiting.map(({ id }) => id).toSorted()).toEqual([first.id, second.id].toSorted());
    });

    test("lists by state and label what has changed since, and several states in one order", async () => {
      const [oldest, middle, newest] = [
        await create(sandboxOf({ workspaceId, labels: { kind: "a", only: "oldest" } })),
        await create(sandboxOf({ workspaceId, labels: { kind: "a", only: "middle" } })),
        await create(sandboxOf({ workspaceId, labels: { kind: "a" } })),
      ];
      await create(sandboxOf({ workspaceId: newId(), labels: { kind: "a" } }));
      const list = async (states: SandboxState[], labels: Record<string, string>, limit = 10) =>
        (await store.sandboxes.list(workspaceId, { states, labels }, { limit })).map(({ id }) => id);
      await store.sandboxes.update(becomeReady(newest, now()), []);
      await end(oldest);
      expect(await list(["provisioning"], { kind: "a" })).toEqual([middle.id]);
      expect(await list(["failed"], { kind: "a", only: "oldest" })).toEqual([oldest.id]);
      expect(await list(["ready"], { kind: "a", only: "oldest" })).toEqual([]);
      expect(await list(["failed", "provisioning", "ready", "failed"], {})).toEqual([newest.id, middle.id, oldest.id]);
      expect(await list(["provisioning", "failed"], { kind: "a" })).toEqual([middle.id, oldest.id]);
      expect(await list(["failed", "ready"], {}, 1)).toEqual([newest.id]);
      expect(await list([], { kind: "b" })).toEqual([]);
      await store.unfinished.markCleaned(oldest.id, now());
      expect(await list([], { only: "oldest" })).toEqual([oldest.id]);
      expect(await store.retention.deleteCleaned(workspaceId, 10)).toBe(1);
      expect(await list([], { only: "oldest" })).toEqual([]);
      expect(await list([], { kind: "a" })).toEqual([newest.id, middle.id]);
    });
  });
}
