import { request } from "node:http";
import { type Container, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { statusOf, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import type { RuntimeLifecycle } from "../lifecycle.ts";
import type { InspectedContainer } from "./observation.ts";

/** For one request, connecting included. */
const httpTimeoutMs = 2_000;

/** For one call of the engine: on a busy machine an exec takes seconds, whatever the container does. */
const execTimeoutMs = 10_000;

/** How long the container's process must have run when its image has no program to exec. */
const minUptimeMs = 1_000;

/** Enough for the engine's own message about a missing program. */
const maxOutputBytes = 65_536;

/** Exit codes of an exec whose program is missing or can't be run. */
const noProgram = new Set([126, 127]);

/** `RuntimeLifecycle.probe`, with the addresses of sandboxes that are not ready yet. */
export interface ReadinessProbe {
  run: RuntimeLifecycle["probe"];
  /** Remembers where a sandbox runs that was just started. */
  note(sandboxId: string, container: InspectedContainer): void;
  forget(sandboxId: string): void;
}

export function createReadinessProbe(o: {
  engine: Engine;
  inspect(sandboxId: string): Promise<InspectedContainer | undefined>;
}): ReadinessProbe {
  const addresses = new Map<string, string>();

  /** The address of a running container. */
  function note(sandboxId: string, container: InspectedContainer | undefined): string | undefined {
    const address = container?.info.State.Running
      ? Object.values(container.info.NetworkSettings.Networks)[0]?.IPAddress
      : undefined;
    if (address) addresses.set(sandboxId, address);
    else addresses.delete(sandboxId);
    return address || undefined;
  }

  async function probeCommand(sandboxId: string, signal: AbortSignal): Promise<boolean> {
    const container = await o.inspect(sandboxId);
    if (!container?.info.State.Running) return false;
    const { Id: id, State: state } = container.info;
    return probeExec(o.engine.getContainer(id), new Date(state.StartedAt), signal);
  }

  /**
   * A sandbox that doesn't answer yet is probed many times, so the engine is only asked whether it is the one that has
   * answered.
   */
  async function probePort(sandboxId: string, port: number, signal: AbortSignal): Promise<boolean> {
    const known = addresses.get(sandboxId);
    if (known !== undefined && !(await probeHttp(known, port, signal))) return false;
    const address = note(sandboxId, await o.inspect(sandboxId));
    const isReady = address !== undefined && (address === known || (await probeHttp(address, port, signal)));
    if (isReady) addresses.delete(sandboxId);
    return isReady;
  }

  return {
    note,
    forget: (sandboxId) => addresses.delete(sandboxId),
    async run(sandboxId, readinessPort, signal) {
      try {
        signal.throwIfAborted();
        const probing =
          readinessPort === undefined ? probeCommand(sandboxId, signal) : probePort(sandboxId, readinessPort, signal);
        return await probing;
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw toRuntimeUnavailable(error);
      }
    },
  };
}

/**
 * True when `GET /` answers 200 to 399. Only the headers are read (16 KiB at most, Node's limit), then the connection
 * is closed; redirects are not followed. Throws the signal's reason.
 */
async function probeHttp(address: string, port: number, signal: AbortSignal): Promise<boolean> {
  signal.throwIfAborted();
  const ready = await new Promise<boolean>((resolve) => {
    const limit = AbortSignal.any([signal, AbortSignal.timeout(httpTimeoutMs)]);
    const get = request({ host: address, port, path: "/", agent: false, signal: limit });
    get.setHeader("user-agent", "sandgate-readiness");
    get.on("response", (response) => {
      const status = response.statusCode ?? 0;
      resolve(status >= 200 && status <= 399);
      get.destroy();
    });
    get.on("error", () => resolve(false));
    get.on("close", () => resolve(false));
    get.end();
  });
  signal.throwIfAborted();
  return ready;
}

/** True when an exec of `true` exits with 0, or can't be run and the container's process has run for a second. */
async function probeExec(container: Container, startedAt: Date, signal: AbortSignal): Promise<boolean> {
  const limits = { signal, timeoutMs: execTimeoutMs };
  try {
    const exec = await callEngine(
      (abortSignal) => container.exec({ Cmd: ["true"], AttachStdout: true, AttachStderr: true, abortSignal }),
      limits,
    );
    await callEngine(async (abortSignal) => {
      // Attached, so that the stream ends with the program. The real `true` prints nothing.
      const output = await exec.start({ abortSignal });
      let bytes = 0;
      for await (const chunk of output) {
        bytes += chunk.length;
        if (bytes > maxOutputBytes) break;
      }
    }, limits);
    const { ExitCode: exitCode } = await callEngine((abortSignal) => exec.inspect({ abortSignal }), limits);
    if (exitCode === 0) return true;
    // One that will have started was started before the clock was set back.
    const uptimeMs = Math.abs(Date.now() - startedAt.getTime());
    return exitCode !== null && noProgram.has(exitCode) && uptimeMs >= minUptimeMs;
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const isTimeout = error instanceof Error && (error.name === "TimeoutError" || error.name === "AbortError");
    // The container has ended, has no process left to start, or is too slow.
    if (isTimeout || statusOf(error) !== undefined) return false;
    throw error;
  }
}
