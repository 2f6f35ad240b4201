import { findEngineAddress } from "@sandgate/docker-engine/address";
import { type Engine, inspectImage, openEngine, ping } from "@sandgate/docker-engine/client";
import { finishProgress } from "@sandgate/docker-engine/streams";
import { messageOf } from "@sandgate/kit/base/domain-error";

/** How long the engine may take to show that it is there, or has an image. */
const answerTimeoutMs = 15_000;
/** A public registry that can't be reached must not delay a start. */
const buildTimeoutMs = 60_000;

const address = findEngineAddress(process.env);
const [command = "", reference = "", base = ""] = process.argv.slice(2);

/**
 * The commands of start.sh on the container engine. Exit code 0 means yes; 1 means no, with the reason in one line on
 * stderr.
 */
const commands: Record<string, (engine: Engine) => Promise<unknown>> = {
  probe: (engine) => ping(engine, { timeoutMs: answerTimeoutMs }),
  "has-image": (engine) => inspectImage(engine, reference, { timeoutMs: answerTimeoutMs }),
  /** Builds from the context on stdin, a tar whose Dockerfile takes BASE. */
  "build-image": async (engine) => {
    const progress = await engine.buildImage(process.stdin, {
      t: reference,
      buildargs: { BASE: base },
      forcerm: true,
      abortSignal: AbortSignal.timeout(buildTimeoutMs),
    });
    await finishProgress(progress);
  },
};

function problemOf(error: unknown): string {
  if (command === "probe" && error instanceof Error && error.name === "TimeoutError") {
    return `the container engine at ${address} has not answered within ${answerTimeoutMs / 1000} s: try again if it is starting, otherwise restart it (sudo systemctl restart docker)`;
  }
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (command !== "probe" || code === undefined) return messageOf(error).trim();
  return code === "EACCES"
    ? `this user may not use the container engine at ${address}`
    : `no container engine answers at ${address} (${code})`;
}

try {
  await commands[command]?.(openEngine(address));
} catch (error) {
  process.stderr.write(`${problemOf(error)}\n`);
  process.exitCode = 1;
}
