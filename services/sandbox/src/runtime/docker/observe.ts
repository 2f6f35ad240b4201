import { setTimeout as delay } from "node:timers/promises";
import type { Engine } from "@sandgate/docker-engine/client";
import { openContainerEvents } from "@sandgate/docker-engine/events";
import { type Backoff, backoffMs } from "@sandgate/kit/base/backoff";
import type { Logger } from "@sandgate/kit/base/logging";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import { recheckMs } from "./isolation.ts";

const actions = ["create", "start", "die", "oom", "destroy"] as const;
const retry: Backoff = { firstMs: 200, lastMs: 5_000 };

interface ObserveOptions {
  engine: Engine;
  installationId: string;
  verifyIsolation(): Promise<unknown>;
  logger: Logger;
  signal: AbortSignal;
}

/**
 * `RuntimeLifecycle.observe`: the engine's events as wake-ups. Isolation is verified at each connect and every 30 s.
 */
export async function* observeEngine(o: ObserveOptions): AsyncGenerator<{ sandboxId: string | undefined }> {
  // A set, so that a slow consumer costs no more than one entry for each sandbox.
  const pending = new Set<string | undefined>();
  const wakeup = createWakeup();
  const push = (sandboxId: string | undefined) => {
    pending.add(sandboxId);
    wakeup.wake();
  };
  const stopped = new AbortController();
  const signal = AbortSignal.any([o.signal, stopped.signal]);
  const verify = () =>
    o
      .verifyIsolation()
      .catch((error: unknown) => o.logger.error({ err: error }, "the isolation of sandboxes could not be verified"));
  const timer = setInterval(verify, recheckMs).unref();
  const following = followEvents({ ...o, signal, push, verify });
  try {
    while (!signal.aborted) {
      for (const sandboxId of pending) {
        pending.delete(sandboxId);
        yield { sandboxId };
      }
      await wakeup.wait(recheckMs, signal);
    }
  } finally {
    clearInterval(timer);
    stopped.abort();
    await following;
  }
}

/** Reads the engine's events until the signal aborts, connecting again whenever they end. */
async function followEvents(
  o: ObserveOptions & { push(sandboxId: string | undefined): void; verify(): Promise<unknown> },
): Promise<void> {
  let failures = 0;
  while (!o.signal.aborted) {
    try {
      const events = await openContainerEvents(o.engine, { ...o, actions });
      failures = 0;
      await o.verify();
      // Once the events are open, so that no change falls between the two.
      o.push(undefined);
      for await (const { sandboxId } of events) o.push(sandboxId);
    } catch (error) {
      if (!o.signal.aborted) o.logger.warn({ err: error }, "the engine's events can't be read");
    }
    failures += 1;
    await delay(backoffMs(failures, retry), undefined, { signal: o.signal }).catch(() => {});
  }
}
