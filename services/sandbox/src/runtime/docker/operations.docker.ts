import type { Socket } from "node:net";
import { containerNameOf } from "@sandgate/container-labels";
import { type Container, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { statusOf, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { openExec } from "@sandgate/docker-engine/exec";
import type { Logger } from "@sandgate/kit/base/logging";
import { minuteMs, monotonicMs } from "@sandgate/kit/base/time";
import { LRUCache } from "lru-cache";
import { explainHelperEnd, sandboxEnded } from "../helper-end.ts";
import { helperCommand, helperStartCommand, type RuntimeOperations } from "../operations.ts";
import type { Connector, DaemonPlace } from "./connector.ts";

const maxKnownUsers = 10_000;
const maxUidLength = 10;
/** How long the engine carries all connections after none could go past it. */
const restMs = minuteMs;

/** Operations in containers of a Docker-compatible engine; past it where there is a connector that can. */
export function createDockerOperations(
  engine: Engine,
  { connector, logger }: { connector: Connector | undefined; logger: Logger },
): RuntimeOperations {
  /** Users of daemons that have been started, by container. */
  const users = new LRUCache<string, number>({ max: maxKnownUsers });
  /** While connections can't go past the engine: when that is tried again, by `monotonicMs`. */
  let restsUntil: number | undefined;
  const isResting = () => restsUntil !== undefined && monotonicMs() < restsUntil;

  /** Undefined where the engine must carry the connection, and says what is wrong. */
  async function connectDirectly(container: Container, signal: AbortSignal): Promise<Socket | undefined> {
    if (!connector || isResting()) return undefined;
    const { containerId, pid } = await inspect(container, signal);
    if (pid === 0) return undefined;
    const known = users.get(containerId);
    const socket = known !== undefined && (await tryConnector(container, { containerId, pid, uid: known }, signal));
    if (socket) return socket;
    const uid = isResting() ? undefined : await startDaemon(container, signal);
    if (uid === undefined) return undefined;
    users.set(containerId, uid);
    return tryConnector(container, { containerId, pid, uid }, signal);
  }

  async function tryConnector(container: Container, place: DaemonPlace, signal: AbortSignal) {
    try {
      const socket = await connector?.connect(place, signal);
      if (socket && restsUntil !== undefined) {
        restsUntil = undefined;
        logger.info("helpers are reached past the engine again");
      }
      return socket;
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      // One that has ended can't be entered either.
      if ((await inspect(container, signal)).pid === place.pid) {
        if (restsUntil === undefined) {
          logger.info({ err: error }, "helpers are reached through the engine, which takes longer");
        }
        restsUntil = monotonicMs() + restMs;
      }
      return undefined;
    }
  }

  async function inContainer<T>(
    sandboxId: string,
    signal: AbortSignal,
    connect: (container: Container) => Promise<T>,
  ): Promise<T> {
    try {
      return await connect(engine.getContainer(containerNameOf(sandboxId)));
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      // No such container, or one that doesn't run.
      const status = statusOf(error);
      if (status === 404 || status === 409) throw sandboxEnded(error);
      throw toRuntimeUnavailable(error);
    }
  }

  return {
    connectHelper: (sandboxId, signal) =>
      inContainer(sandboxId, signal, async (container) => {
        const socket = await connectDirectly(container, signal);
        return socket ?? openExec(container, helperCommand, { signal, explainEnd: explainHelperEnd });
      }),

    ...(connector && {
      connectDaemon: (sandboxId: string, signal: AbortSignal) =>
        inContainer(sandboxId, signal, async (container) => {
          if (isResting()) return undefined;
          const { containerId, pid } = await inspect(container, signal);
          const uid = users.get(containerId);
          return uid === undefined || pid === 0
            ? undefined
            : tryConnector(container, { containerId, pid, uid }, signal);
        }),
    }),
  };
}

async function inspect(container: Container, signal: AbortSignal): Promise<{ containerId: string; pid: number }> {
  const { Id: containerId, State: state } = await callEngine((abortSignal) => container.inspect({ abortSignal }), {
    signal,
  });
  return { containerId, pid: state.Pid };
}

/** Starts the helper's daemon unless it runs. Returns its user, or undefined when it can't be started. */
async function startDaemon(container: Container, signal: AbortSignal): Promise<number | undefined> {
  const stream = await openExec(container, helperStartCommand, { signal, explainEnd: explainHelperEnd });
  // A tenant may have another program in its place.
  const abort = () => stream.destroy();
  signal.addEventListener("abort", abort);
  let text = "";
  try {
    for await (const chunk of stream) {
      text += String(chunk);
      if (text.endsWith("\n") || text.length > maxUidLength) break;
    }
  } catch {
    return undefined;
  } finally {
    signal.removeEventListener("abort", abort);
  }
  signal.throwIfAborted();
  return /^\d{1,10}\n$/.test(text) ? Number(text) : undefined;
}
