import { DomainError } from "@sandgate/kit/base/domain-error";
import type { PullRequest } from "../reconcile/runtime.ts";
import { type Engine, engineMessageOf, statusOf, unavailable } from "./client.ts";

/** A pull as the port describes it. The engine skips the registry for a digest it has: authorization is the registry service's. */
export async function pullImage(engine: Engine, request: PullRequest): Promise<void> {
  try {
    request.signal.throwIfAborted();
    await pull(engine, request);
  } catch (error) {
    if (request.signal.aborted) throw request.signal.reason;
    throw explainPullFailure(error, request.registryHost);
  }
}

async function pull(engine: Engine, request: PullRequest): Promise<void> {
  const at = request.pinnedReference.lastIndexOf("@");
  const options = {
    fromImage: request.pinnedReference.slice(0, at),
    tag: request.pinnedReference.slice(at + 1),
    abortSignal: request.signal,
  };
  const credential = request.username
    ? { username: request.username, password: request.password, serveraddress: request.registryHost }
    : undefined;
  const progress = await engine.createImage(credential, options);
  // Once the engine has begun to answer, a failure is a line of the stream, under status 200.
  let text = "";
  for await (const chunk of progress.setEncoding("utf8")) {
    const lines = `${text}${chunk}`.split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) throwIfFailure(line);
  }
  throwIfFailure(text);
}

/** A failure the engine reported while pulling; it has answered, so it is not the engine that is out of reach. */
class PullFailure extends Error {
  readonly statusCode = 500;
}

function throwIfFailure(line: string): void {
  if (line.trim() === "") return;
  const parsed: unknown = JSON.parse(line);
  if (typeof parsed === "object" && parsed !== null && "error" in parsed) throw new PullFailure(String(parsed.error));
}

/**
 * The engine passes the registry's answers on as text alone. An unknown repository and a refused credential share one
 * sentence at registries that hide which exists ("pull access denied … repository does not exist or may require …").
 */
export function explainPullFailure(error: unknown, registryHost: string): DomainError {
  if (statusOf(error) === undefined) return unavailable(error);
  const message = engineMessageOf(error);
  const cause = { cause: error };
  if (/manifest unknown|name unknown|not found: |repository .* not found|no such image/i.test(message)) {
    return new DomainError("IMAGE_NOT_FOUND_IN_REGISTRY", `The image was not found at ${registryHost}.`, cause);
  }
  if (
    /unauthorized|no basic auth credentials|access.*denied|denied:|authentication required|403 forbidden/i.test(message)
  ) {
    return new DomainError("IMAGE_PULL_UNAUTHORIZED", `${registryHost} refused the credential for this image.`, cause);
  }
  if (
    /no matching manifest|unsupported (media|manifest)|image operating system|invalid reference|does not match .*platform/i.test(
      message,
    )
  ) {
    return new DomainError("PROVISIONING_FAILED", `The image can't run here: ${message}`, cause);
  }
  if (/no space left|input\/output error|failed to register layer/i.test(message)) return unavailable(error);
  return new DomainError(
    "REGISTRY_UNREACHABLE",
    `${registryHost} can't be reached or did not deliver the image.`,
    cause,
  );
}
