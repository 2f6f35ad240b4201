import { callEngine, type Engine, inspectImage, openImageList } from "@sandgate/docker-engine/client";
import {
  engineMessageOf,
  ignoreStatus,
  statusOf,
  throwUnavailable,
  toRuntimeUnavailable,
} from "@sandgate/docker-engine/errors";
import { finishProgress, readJsonList } from "@sandgate/docker-engine/streams";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { ImageStore, PullRequest, StoredImage } from "../images.ts";

/** Thousands of images with long labels take some seconds. */
const listTimeoutMs = 60_000;

/** The part of an image in the engine's list that is used (Docker Engine API 1.41). */
interface ListedImage {
  Id: string;
  RepoDigests?: string[] | null;
  Size: number;
}

/**
 * The images of a Docker-compatible engine. It skips the registry for a digest that it has, so image-registry
 * authorizes.
 */
export function createDockerImages(engine: Engine): ImageStore {
  return {
    async find(reference) {
      const found = await ignoreStatus([404], inspectImage(engine, reference)).catch(throwUnavailable);
      return found && { pinnedReference: found.Id, digest: found.Id };
    },

    async pull(request) {
      try {
        request.signal.throwIfAborted();
        await pull(engine, request);
      } catch (error) {
        if (request.signal.aborted) throw request.signal.reason;
        throw explainPullFailure(error, request.registryHost);
      }
    },

    async list() {
      try {
        const containers = await callEngine((abortSignal) => engine.listContainers({ all: true, abortSignal }));
        const used = new Set(containers.map(({ ImageID: id }) => id));
        const images: StoredImage[] = [];
        const list = await openImageList(engine, AbortSignal.timeout(listTimeoutMs));
        // One at a time: with its labels, which are as long as tenants like, the list may be longer than a string can be.
        for await (const { Id: id, RepoDigests: names, Size: sizeBytes } of readJsonList<ListedImage>(list)) {
          images.push({ id, names: names ?? [], sizeBytes, isUsed: used.has(id) });
        }
        return images;
      } catch (error) {
        throw toRuntimeUnavailable(error);
      }
    },

    async remove(name) {
      const removing = callEngine((abortSignal) => engine.getImage(name).remove({ abortSignal }));
      const removed = await ignoreStatus([404, 409], removing).catch(throwUnavailable);
      return removed !== undefined;
    },
  };
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
  if (/manifest unknown|name unknown|not found: |repository \S+ not found|no such image/i.test(message)) {
    return new DomainError("IMAGE_NOT_FOUND_IN_REGISTRY", `The image was not found at ${registryHost}.`, cause);
  }
  if (
    /unauthorized|no basic auth credentials|access (?:to the resource is )?denied|denied:|authentication required|403 forbidden/i.test(
      message,
    )
  ) {
    return new DomainError("IMAGE_PULL_UNAUTHORIZED", `${registryHost} refused the credential for this image.`, cause);
  }
  if (
    /no matching manifest|unsupported (media|manifest)|image operating system|invalid reference|does not match the \w+ platform/i.test(
      message,
    )
  ) {
    const text = "The image can't run here: it is for another platform, or of a form that the engine doesn't know.";
    return new DomainError("PROVISIONING_FAILED", text, cause);
  }
  if (/no space left|input\/output error|failed to register layer/i.test(message)) return toRuntimeUnavailable(error);
  return new DomainError(
    "REGISTRY_UNREACHABLE",
    `${registryHost} can't be reached or did not deliver the image.`,
    cause,
  );
}
