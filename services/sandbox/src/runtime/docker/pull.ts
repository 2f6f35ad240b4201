import type { Engine } from "@sandgate/docker-engine/client";
import { engineMessageOf, statusOf, toRuntimeUnavailable } from "@sandgate/docker-engine/errors";
import { finishProgress } from "@sandgate/docker-engine/streams";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { PullRequest } from "../lifecycle.ts";

/** `Runtime.pull`. The engine skips the registry for a digest that it has: image-registry authorizes. */
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
  await finishProgress(await engine.createImage(credential, options));
}

/**
 * The engine passes the registry's answers on as text alone. An unknown repository and a refused credential share one
 * sentence at registries that hide which exists ("pull access denied … repository does not exist or may require …").
 */
export function explainPullFailure(error: unknown, registryHost: string): DomainError {
  if (statusOf(error) === undefined) return toRuntimeUnavailable(error);
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
  if (/no space left|input\/output error|failed to register layer/i.test(message)) return toRuntimeUnavailable(error);
  return new DomainError(
    "REGISTRY_UNREACHABLE",
    `${registryHost} can't be reached or did not deliver the image.`,
    cause,
  );
}
