import { request } from "node:http";
import { type Container, callEngine } from "@sandgate/docker-engine/client";
import { statusOf } from "@sandgate/docker-engine/errors";

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

/**
 * True when `GET /` answers 200 to 399. Only the headers are read (16 KiB at most, Node's limit), then the connection is
 * closed; redirects are not followed. Throws the signal's reason.
 */
export async function probeHttp(address: string, port: number, signal: AbortSignal): Promise<boolean> {
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
export async function probeExec(container: Container, startedAt: Date, signal: AbortSignal): Promise<boolean> {
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
    return exitCode !== null && noProgram.has(exitCode) && Date.now() - startedAt.getTime() >= minUptimeMs;
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const isTimeout = error instanceof Error && (error.name === "TimeoutError" || error.name === "AbortError");
    // The container has ended, has no process left to start, or is too slow.
    if (isTimeout || statusOf(error) !== undefined) return false;
    throw error;
  }
}
