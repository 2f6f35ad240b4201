import { messageOf } from "@sandgate/kit/base/domain-error";
import Dockerode from "dockerode";
import { runtimeAddress } from "./runtime-address.ts";

/** A public registry that is out of reach must not hold up a start. */
const buildTimeoutMs = 60_000;

const address = runtimeAddress(process.env);
const [command, reference = "", base = ""] = process.argv.slice(2);

/** What start.sh asks of the container engine. Exit code 0 means yes; 1 means no, with the reason in one line on stderr. */
const commands: Record<string, (engine: Dockerode) => Promise<unknown>> = {
  probe: (engine) => engine.ping(),
  "has-image": (engine) => engine.getImage(reference).inspect(),
  /** Builds from the context on stdin, a tar whose Dockerfile takes BASE. */
  "build-image": async (engine) => {
    const progress = await engine.buildImage(process.stdin, {
      t: reference,
      buildargs: { BASE: base },
      forcerm: true,
      abortSignal: AbortSignal.timeout(buildTimeoutMs),
    });
    // The engine reports a failed build as the last message of a successful answer.
    await new Promise<void>((resolve, reject) => {
      engine.modem.followProgress(progress, (error, messages: { error?: string }[]) => {
        const failed = error?.message ?? messages.find((message) => message.error)?.error;
        if (failed) reject(new Error(failed));
        else resolve();
      });
    });
  },
};

function openEngine(): Dockerode {
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url?.protocol !== "docker:") {
    throw new Error(`SANDGATE_RUNTIME or DOCKER_HOST is not the address of a container engine: ${address}`);
  }
  return url.hostname === ""
    ? new Dockerode({ socketPath: decodeURIComponent(url.pathname) })
    : new Dockerode({ host: url.hostname, port: url.port || "2375", protocol: "http" });
}

try {
  await commands[command ?? ""]?.(openEngine());
} catch (error) {
  const reason = messageOf(error);
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  const problem =
    command !== "probe" || code === undefined
      ? reason
      : code === "EACCES"
        ? `this user may not use the container engine at ${address}`
        : `no container engine answers at ${address} (${code})`;
  process.stderr.write(`${problem.trim()}\n`);
  process.exitCode = 1;
}
