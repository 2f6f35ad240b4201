import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { allShards } from "@sandgate/kit/process/shards";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import { fail } from "../domain/sandbox.ts";
import {
  engine,
  provision,
  provisionBefore,
  reaches,
  read,
  reconciler,
  start,
  stopByUser,
  store,
  useReconciler,
} from "./reconciler.fixture.ts";

useReconciler();

test("a live sandbox is not lost whose container is there, though no list shows it", async () => {
  await start();
  const id = await provision();
  await reaches(id, "ready");
  const { inspect } = engine;
  let [asked, lists] = [0, 0];
  // The first time it is missing, so that a sweep is wanted.
  engine.inspect = async (sandboxId) => (++asked === 1 ? undefined : inspect(sandboxId));
  engine.list = async () => {
    lists += 1;
    return [];
  };
  reconciler.wake(id);
  await until(() => expect(lists).toBeGreaterThan(3));
  expect((await store.sandboxes.get(id))?.state).toBe("ready");
});

test("a start asks about no sandbox that the list shows running, and each ends at its time all the same", async () => {
  await start();
  const ids = await Promise.all([provision({ ttlSeconds: 60 }), provision({ ttlSeconds: 60 }), provision()]);
  const [ready] = await Promise.all(ids.map((id) => reaches(id, "ready")));
  await reconciler.stop();
  if (!ready) throw new Error("none is ready");
  await store.sandboxes.update({ ...ready, version: ready.version + 1, expiresAt: new Date(Date.now() + 500) }, []);
  engine.inspected = [];
  const { list } = engine;
  let lists = 0;
  // A later list would find it, too.
  engine.list = async () => {
    if (++lists > 1) throw new DomainError("RUNTIME_UNAVAILABLE", "The engine lists no more.");
    return list();
  };
  await start();
  await reaches(ready.id, "stopped", "ttl_expired");
  await until(async () => expect((await read(ready.id)).cleanedAt).toBeDefined());
  expect(new Set(engine.inspected)).toEqual(new Set([ready.id]));
});

test("what changed while the engine's events could not be read is found by a list", async () => {
  await start();
  const ids = await Promise.all([provision(), provision()]);
  for (const id of ids) await reaches(id, "ready");
  const [ended = "", running = ""] = ids;
  const object = engine.objects.get(ended);
  if (!object) throw new Error("no such object");
  // Their last step may look once more.
  do {
    engine.inspected = [];
    await delay(200);
  } while (engine.inspected.length > 0);
  engine.objects.set(ended, { ...object, phase: "exited", exitCode: 3 });
  engine.reconnect();
  await reaches(ended, "failed", "exited");
  expect(engine.inspected).not.toContain(running);
});

test("a live sandbox is lost only after two complete lists without its container", async () => {
  await start();
  const id = await provision();
  await reaches(id, "ready");
  engine.objects.delete(id);
  reconciler.wake(id);
  await reaches(id, "failed", "runtime_lost");
});

test("removes containers whose record has ended, but not many orphans at once", async () => {
  const old = new Date(Date.now() - 120_000);
  for (let i = 0; i < 12; i++) {
    engine.objects.set(`x${i}`, { sandboxId: `x${i}`, phase: "running", createdAt: old });
  }
  await start();
  const id = await provision();
  await reaches(id, "ready");
  await stopByUser(id);
  await until(async () => expect((await read(id)).cleanedAt).toBeDefined());
  expect(engine.objects.size).toBe(12);
  await reconciler.stop();
  await start({ confirmOrphanRemoval: true });
  await until(() => expect(engine.objects.size).toBe(0));
});

test("one container that can't be removed, or takes long, keeps no other", async () => {
  const createdAt = new Date(Date.now() - 120_000);
  const ended = await provisionBefore();
  await store.sandboxes.update(fail(await read(ended), { reason: "exited", message: "over" }, new Date()), []);
  await store.unfinished.markCleaned(ended, new Date());
  for (const sandboxId of ["x0", "x1", "x2", ended])
    engine.objects.set(sandboxId, { sandboxId, phase: "running", createdAt });
  const { remove } = engine;
  const hung = Promise.withResolvers<void>();
  let failures = 0;
  engine.remove = async (sandboxId) => {
    if (sandboxId === "x1") await hung.promise;
    if (sandboxId === "x0" && ++failures < 3)
      throw new DomainError("RUNTIME_UNAVAILABLE", "The container engine failed.");
    await remove(sandboxId);
  };
  await start();
  await until(() => expect([...engine.objects.keys()]).toEqual(["x0", "x1"]));
  // And it is tried again.
  for (let sweeps = 0; sweeps < 2; sweeps++) {
    const before = failures;
    engine.reconnect();
    await until(() => expect(failures).toBe(before + 1));
  }
  await until(() => expect([...engine.objects.keys()]).toEqual(["x1"]));
  hung.resolve();
  await until(() => expect(engine.objects.size).toBe(0));
});

/** Counts the turns of the event loop until the test ends. */
function countTurns(onTestFinished: (end: () => void) => void): () => number {
  let turn = 0;
  const next = () => {
    turn += 1;
    timer = setImmediate(next);
  };
  let timer = setImmediate(next);
  onTestFinished(() => clearImmediate(timer));
  return () => turn;
}

test("others get their turn between the pages of a sweep", async ({ onTestFinished }) => {
  const turn = countTurns(onTestFinished);
  const sandbox = await read(await provisionBefore());
  const turns: number[] = [];
  const pages = [1, 2, 3, 4].map((page) => [{ ...sandbox, id: String(page) }]);
  const list = async () => {
    turns.push(turn());
    return pages.shift() ?? [];
  };
  await start({ store: { ...store, unfinished: { ...store.unfinished, list } } });
  await until(() => expect(turns.length).toBeGreaterThanOrEqual(5));
  expect(new Set(turns).size).toBe(turns.length);
});

test("others get their turn while the runtime tells of all its sandboxes, as after a restart", async ({
  onTestFinished,
}) => {
  const turn = countTurns(onTestFinished);
  const told = Array.from({ length: 1_000 }, (_, index) => ({ sandboxId: String(index) }));
  const readsIn = new Map<number, number>();
  await start({
    runtime: {
      ...engine,
      async *observe() {
        yield* told;
      },
    },
    store: {
      ...store,
      sandboxes: {
        ...store.sandboxes,
        async get() {
          readsIn.set(turn(), (readsIn.get(turn()) ?? 0) + 1);
          return undefined;
        },
      },
    },
  });
  const sum = () => [...readsIn.values()].reduce((all, count) => all + count, 0);
  await until(() => expect(sum()).toBe(told.length));
  expect(Math.max(...readsIn.values())).toBeLessThanOrEqual(50);
});

test("many orphans are counted over the whole engine, however few of them are this replica's", async () => {
  const createdAt = new Date(Date.now() - 120_000);
  const putOrphans = (count: number) => {
    for (let i = 0; i < count; i++) {
      engine.objects.set(`x${i}`, { sandboxId: `x${i}`, phase: "running", createdAt });
    }
  };
  // As one of seven replicas has it.
  const shards = { ...allShards, owns: (id: string) => id === "x0" || id === "x1" || !id.startsWith("x") };
  putOrphans(14);
  await start({ shards });
  await until(() => expect(reconciler.orphanProblem()).toContain("SANDGATE_CONFIRM_ORPHAN_REMOVAL=true"));
  expect(engine.objects.size).toBe(14);
  await reconciler.stop();
  await start({ shards, confirmOrphanRemoval: true });
  await until(() => expect(engine.objects.size).toBe(12));
  expect(reconciler.orphanProblem()).toBeUndefined();
  await reconciler.stop();
  // Few enough: each replica removes its own without being asked.
  engine.objects.clear();
  putOrphans(9);
  await start({ shards });
  await until(() => expect(engine.objects.size).toBe(7));
});
