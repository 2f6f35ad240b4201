import { monotonicMs } from "@sandgate/kit/base/time";
import type { Histogram } from "prom-client";
import { becomeReady, beginStop, hasExpired, type Sandbox } from "../domain/sandbox.ts";
import type { RuntimeLifecycle } from "../runtime/lifecycle.ts";
import type { DiskWatch } from "./disk-watch.ts";
import { containerLost } from "./failures.ts";
import type { Records } from "./records.ts";
import type { Retries } from "./retries.ts";
import type { Next, Pass } from "./work-queue.ts";

export interface ReadinessOptions {
  runtime: RuntimeLifecycle;
  records: Records;
  retries: Retries;
  disk: DiskWatch;
  limits: { readinessTimeoutMs: number };
  metrics: { readySeconds: Histogram };
}

/** The interval between two probes. It grows more slowly than a backoff, so that readiness is seen soon. */
const probeIntervalMs = { first: 5, growth: 1.4, longest: 250 };

/** How often the engine is asked whether an unready sandbox still runs. Events usually wake the pass sooner. */
const inspectEveryMs = 500;

export interface ReadinessWait {
  /** Probes a started sandbox until it is ready, has ended, or has used up its time. */
  wait(sandbox: Sandbox, pass: Pass, firstProbe: Promise<boolean>): Promise<Next>;
  /** Saves that it is ready, together with its start if that isn't saved yet. */
  save(sandbox: Sandbox, start?: { createdAt: Date; startedAt: Date }): Promise<Next>;
}

export function createReadinessWait(o: ReadinessOptions): ReadinessWait {
  const { runtime, records, retries, disk, limits, metrics } = o;

  async function save(sandbox: Sandbox, start?: { createdAt: Date; startedAt: Date }): Promise<Next> {
    if (await records.save(becomeReady(sandbox, new Date(), start))) {
      metrics.readySeconds.observe((Date.now() - sandbox.createdAt.getTime()) / 1000);
      retries.forget(sandbox.id);
    }
    return "again";
  }

  async function wait(sandbox: Sandbox, { signal, sleep }: Pass, firstProbe: Promise<boolean>): Promise<Next> {
    const port = sandbox.image.readinessPort;
    const startedMs = (sandbox.startedAt ?? sandbox.createdAt).getTime();
    const deadline = monotonicMs() + startedMs + limits.readinessTimeoutMs - Date.now();
    let probe: Promise<boolean> | undefined = firstProbe;
    let inspectAtMs = performance.now() + inspectEveryMs;
    for (let intervalMs = probeIntervalMs.first; !signal.aborted; ) {
      // Only a probe that begins after the deadline is the last: the machine may have slept during an earlier one.
      const isLast = !probe && monotonicMs() >= deadline;
      const isReady = await (probe ?? runtime.probe(sandbox.id, port, signal));
      probe = undefined;
      if (isReady) return save(sandbox);
      if (isLast || performance.now() >= inspectAtMs) {
        const seen = await runtime.inspect(sandbox.id);
        if (!seen || seen.phase === "exited") {
          if (seen) await records.saveEnd(sandbox, seen);
          else await records.saveFailure(sandbox, containerLost);
          return "again";
        }
        if (seen.problem) return "again";
        inspectAtMs = performance.now() + inspectEveryMs;
      }
      const full = disk.failureOf(sandbox.id);
      if (full) {
        await records.saveFailure(sandbox, full);
        return "again";
      }
      if (hasExpired(sandbox, new Date())) {
        await records.save(beginStop(sandbox, "ttl_expired", new Date()));
        return "again";
      }
      if (isLast) {
        const cause =
          port === undefined
            ? "no command could be run in it."
            : `GET / on port ${port} was not answered with a status from 200 to 399.`;
        await records.saveFailure(sandbox, {
          reason: "readiness_timeout",
          message: `The container was not ready within ${limits.readinessTimeoutMs / 1000} s of its start: ${cause}`,
        });
        return "again";
      }
      const wakesAtMs = performance.now() + intervalMs;
      await sleep(intervalMs);
      // An early wake may mean that the container has ended.
      if (performance.now() < wakesAtMs - 1) inspectAtMs = 0;
      intervalMs = Math.min(intervalMs * probeIntervalMs.growth, probeIntervalMs.longest);
    }
    return "idle";
  }

  return { wait, save };
}
