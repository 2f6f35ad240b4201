import { request } from "node:http";
import { type Container, callEngine } from "@sandgate/docker-engine/client";
import { statusOf } from "@sandgate/docker-engine/errors";

/** One request, connecting included. */
const httpTimeoutMs = 2_000;

/** One call of the engine: on a busy machine an exec takes seconds, which says nothing about the container. */
const execTimeoutMs = 10_000;

/** How long a process must have run in an image that has no program to exec. */
const settledMs = 1_000;

/** Enough for the engine's own message about a missing program. */
const mostOutputBytes = 65_536;

/** What the engine's exec ends with when the program is not there or can't be run. */
const noProgram = new Set([126, 127]);

/**
 * True when `GET /` answers 200 to 399. Only the head of the answer is read (16 KiB at most, Node's limit), then the
 * connection is dropped; redirects are not followed. Throws the signal's reason.
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

/** True when an exec of `true` ends with 0, or can't be run and the container's process has run for a second. */
export async function probeExec(container: Container, startedAt: Date, signal: AbortSignal): Promise<boolean> {
  const limits = { signal, timeoutMs: execTimeoutMs };
  try {
    const exec = await callEngine(
      (abortSignal) => container.exec({ Cmd: ["true"], AttachStdout: true, AttachStderr: true, abortSignal }),
      limits,
    );
    await callEngine(async (abortSignal) => {
      // Attached, so that the end of the stream is the end of the program; one that prints is not the `true` meant.
      const output = await exec.start({ abortSignal });
      let bytes = 0;
      for await (const chunk of output) {
        bytes += chunk.length;
        if (bytes > mostOutputBytes) break;
      }
    }, limits);
    const { ExitCode: exitCode } = await callEngine((abortSignal) => exec.inspect({ abortSignal }), limits);
    if (exitCode === 0) return true;
    return exitCode !== null && noProgram.has(exitCode) && Date.now() - startedAt.getTime() >= settledMs;
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const isTimeout = error instanceof Error && (error.name === "TimeoutError" || error.name === "AbortError");
    // A container that ended meanwhile, one whose process limit is used up, or one too slow to answer.
    if (isTimeout || statusOf(error) !== undefined) return false;
    throw error;
  }
}
