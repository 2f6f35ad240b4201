import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { allShards } from "@sandgate/kit/process/shards";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect, vi } from "vitest";
import { beginStop } from "../domain/sandbox.ts";
import {
  changes,
  engine,
  provision,
  reaches,
  read,
  reconciler,
  start,
  stopByUser,
  store,
  useReconciler,
} from "./reconciler.fixture.ts";

useReconciler();

test("resumes after a crash from any state", async () => {
  await start();
  const before = await provision();
  await reaches(before, "ready");
  await reconciler.stop();
  // Accepted without a pass; stopping without a stop; exited unseen.
  const accepted = await provision();
  const stopping = await provision();
  await store.sandboxes.update(beginStop(await read(stopping), "stopped_by_user", new Date()), []);
  engine.exit(before, { exitCode: 3 });
  await start();
  await reaches(accepted, "ready");
  await reaches(stopping, "stopped", "stopped_by_user");
  expect((await reaches(before, "failed", "exited")).exitCode).toBe(3);
  await until(() => expect([...engine.objects.keys()]).toEqual([accepted]));
});

test("a replica that stops gives its shards away before it finishes its steps", async () => {
  let owns = true;
  let gaveAway = false;
  const shards = {
    ...allShards,
    owns: () => owns,
    async stop() {
      owns = false;
      gaveAway = true;
    },
  };
  await start({ shards });
  const id = await provision();
  await reaches(id, "ready");
  const held = Promise.withResolvers<void>();
  const { stop } = engine;
  engine.stop = async (...given) => {
    await held.promise;
    await stop(...given);
  };
  await stopByUser(id);
  await reaches(id, "stopping", "stopped_by_user");
  await delay(50);
  let hasStopped = false;
  const stopping = reconciler.stop().then(() => {
    hasStopped = true;
  });
  await until(() => expect(gaveAway).toBe(true));
  await delay(50);
  const seen = { gaveAway, hasStopped };
  held.resolve();
  await stopping;
  expect(seen).toEqual({ gaveAway: true, hasStopped: false });
});

test("a pass is not repeated for what it has written itself", async () => {
  const list = vi.spyOn(store.unfinished, "list");
  await start();
  // The first sweep would wake it too, if it found it.
  await until(() => expect(list).toHaveBeenCalled());
  await list.mock.results[0]?.value;
  engine.starting = {};
  const id = await provision();
  await until(() => expect(engine.specs).toHaveLength(1));
  // The reading of the record that its own announcement causes, and another.
  await store.sandboxes.get(id);
  await delay(20);
  expect(engine.specs).toHaveLength(1);
});

test("what others change while a pass runs gets another pass at once", async () => {
  const held = Promise.withResolvers<void>();
  const limits = { cpus: 1, pids: 64, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  let pulls = 0;
  await start({
    limits: { ...limits, pullTimeoutMs: 3_600_000, registryRetryMs: 3_600_000 },
    async pullImage() {
      pulls += 1;
      if (pulls > 1) return { digest: "sha256:aa", pinnedReference: "sha256:bb" };
      await held.promise;
      throw new DomainError("REGISTRY_UNREACHABLE", "busy", { retryAfterSeconds: 3_000 });
    },
  });
  // So no sweep finds it.
  engine.down = true;
  const id = await provision();
  await until(() => expect(pulls).toBe(1));
  const sandbox = await read(id);
  expect(await store.sandboxes.update({ ...sandbox, version: sandbox.version + 1 }, [])).toBe(true);
  changes.announce(id);
  await delay(20);
  held.resolve();
  await until(() => expect(pulls).toBe(2));
});
