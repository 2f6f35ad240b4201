import { DomainError } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import type { AuthorizePullResponse } from "@sandgate/proto/imageregistry/v1/image_registry";
import { pullFailureReasons, RegistryError } from "@sandgate/registry-client/registry-client";
import type { ImageAccess, PulledImage } from "../runtime/images.ts";
import { createEnginePulls, type PullDestination } from "./engine-pulls.ts";
import { cannotStore, isDiskError } from "./layer-download.ts";
import { createLayerDownloads, type LayerDownloadsOptions } from "./layer-downloads.ts";
import { type AuthorizedPull, accessOf, createPullAuthorization, type PullOrder } from "./pull-authorization.ts";

/** What makes images ready to run. */
export interface ImagePuller {
  /**
   * Makes sure that the image is on the engine, or without one that the registry gives out each of its layers to the
   * workspace. Throws IMAGE_PULL_UNAUTHORIZED, IMAGE_NOT_FOUND_IN_REGISTRY, REGISTRY_UNREACHABLE, PROVISIONING_FAILED
   * (too large, or not for this engine) or RUNTIME_UNAVAILABLE.
   */
  pull(order: PullOrder, signal: AbortSignal): Promise<PulledImage>;
  /** Finds how a runtime pulls the image by itself. Throws the errors of image-registry's AuthorizePull. */
  findAccess(order: PullOrder, signal: AbortSignal): Promise<ImageAccess>;
}

export interface ImagePullerOptions extends Omit<LayerDownloadsOptions, "hasEngine"> {
  /** image-registry's AuthorizePull. */
  authorizePull(order: PullOrder, signal: AbortSignal): Promise<AuthorizePullResponse>;
  /** Undefined where each container's image is pulled by the runtime, from the image's own registry. */
  destination: PullDestination | undefined;
}

/**
 * Brings images to the engine. Layers that a registry has not been seen to give out yet are downloaded and verified
 * first, whether the engine has them or not, since it may have them from another tenant. Then the engine pulls from the
 * endpoint, which has only what was verified: only the guarded client connects to addresses that a tenant names, and no
 * registry, however slow, holds one of the engine's few downloads at once.
 */
export function createImagePuller(o: ImagePullerOptions): ImagePuller {
  const { destination } = o;
  const authorize = createPullAuthorization(o);
  const withVerifiedLayers = createLayerDownloads({ ...o, hasEngine: destination !== undefined });
  const limitOrders = createFairLimit({ perKey: 1 });

  /** Without an engine nothing is kept, but a layer that was not verified is downloaded once for all. */
  async function verifyLayers(order: PullOrder, first: AuthorizedPull, signal: AbortSignal): Promise<PulledImage> {
    if (first.unverified.length === 0) return imageOf(first);
    return limitOrders(
      `${order.workspaceId} ${first.pull.pinnedReference}`,
      async () => {
        const authorized = await authorize(order, signal);
        if (authorized.unverified.length > 0) await withVerifiedLayers(authorized, order, signal);
        return imageOf(authorized);
      },
      signal,
    );
  }

  const makeReady = destination ? createEnginePulls({ destination, authorize, withVerifiedLayers }) : verifyLayers;

  const shareProgress = createSharedProgress();

  return {
    async pull(order, signal) {
      const { shared, leave } = shareProgress(order);
      try {
        return await makeReady(shared, await authorize(order, signal), signal);
      } catch (error) {
        signal.throwIfAborted();
        throw toDomainError(error);
      } finally {
        leave();
      }
    },
    async findAccess(order, signal) {
      return accessOf(await o.authorizePull(order, signal));
    },
  };
}

type ProgressListener = NonNullable<PullOrder["onProgress"]>;

/** Makes what tells all who want the same image how far its one pull is. */
function createSharedProgress() {
  const listeners = new Map<string, Set<ProgressListener>>();
  return (order: PullOrder): { shared: PullOrder; leave(): void } => {
    const { workspaceId, registryId, reference, onProgress } = order;
    if (!onProgress) return { shared: order, leave() {} };
    const key = JSON.stringify([workspaceId, registryId, reference]);
    const all = listeners.get(key) ?? new Set();
    listeners.set(key, all.add(onProgress));
    const tellAll: ProgressListener = (now) => {
      for (const listener of all) listener(now);
    };
    return {
      shared: { ...order, onProgress: tellAll },
      leave() {
        all.delete(onProgress);
        if (all.size === 0 && listeners.get(key) === all) listeners.delete(key);
      },
    };
  };
}

function imageOf({ pull }: AuthorizedPull): PulledImage {
  const { pinnedReference, digest, username } = pull;
  return { pinnedReference, digest, ...(username === "" && { access: accessOf(pull) }) };
}

function toDomainError(error: unknown): unknown {
  if (error instanceof RegistryError) {
    const { problem, message, retryAfterSeconds } = error;
    return new DomainError(pullFailureReasons[problem], message, { cause: error, retryAfterSeconds });
  }
  return isDiskError(error) ? cannotStore(error) : error;
}
