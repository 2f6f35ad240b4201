import { DomainError } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { AuthorizePullResponse } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { ImageAccess } from "../runtime/images.ts";
import type { Layer } from "./layer-download.ts";
import { volumesOf } from "./without-volumes.ts";

/** More than engines run. */
const maxLayers = 127;

/** An image that a workspace wants to run. */
export interface PullOrder {
  readonly workspaceId: string;
  /** Empty: pulled without a credential. */
  readonly registryId: string;
  /** host/repository:tag or host/repository@digest. */
  readonly reference: string;
  /** Hears how much of the layers that have to be downloaded has come, of all of them together. */
  readonly onProgress?: ((now: DownloadProgress) => void) | undefined;
}

export interface DownloadProgress {
  downloadedBytes: number;
  totalBytes: number;
}

/** A pull that image-registry has authorized. */
export interface AuthorizedPull {
  readonly pull: AuthorizePullResponse;
  /** By their digests. */
  readonly layers: ReadonlyMap<string, Layer>;
  /** Layers that the registry has not been seen to give out yet. */
  readonly unverified: readonly Layer[];
}

export type AuthorizePull = (order: PullOrder, signal: AbortSignal) => Promise<AuthorizedPull>;

/**
 * Makes what asks image-registry for a pull. It throws PROVISIONING_FAILED for an image with too many layers or too
 * large ones, and the errors of image-registry's AuthorizePull.
 */
export function createPullAuthorization(o: {
  authorizePull(order: PullOrder, signal: AbortSignal): Promise<AuthorizePullResponse>;
  maxImageMb: number;
}): AuthorizePull {
  return async (order, signal) => {
    const pull = await o.authorizePull(order, signal);
    if (pull.manifest.length === 0) {
      throw new DomainError("UPSTREAM_ERROR", "image-registry answered without the image's manifest.");
    }
    const layers = new Map(
      pull.layers.map(({ digest, sizeBytes, diffId }) => [digest, { digest, diffId, sizeBytes: Number(sizeBytes) }]),
    );
    checkSize([...layers.values()], pull.layers.length, o.maxImageMb);
    const verified = new Set(pull.layers.flatMap((layer) => (layer.verified ? [layer.digest] : [])));
    return { pull, layers, unverified: [...layers.values()].filter(({ digest }) => !verified.has(digest)) };
  };
}

function checkSize(layers: readonly Layer[], count: number, maxImageMb: number): void {
  if (count > maxLayers) {
    throw new DomainError("PROVISIONING_FAILED", `The image has ${count} layers; the limit is ${maxLayers}.`);
  }
  const bytes = sizeOf(layers);
  if (bytes > maxImageMb * mebibyte) {
    const size = Math.ceil(bytes / mebibyte);
    throw new DomainError("PROVISIONING_FAILED", `The image's layers have ${size} MB; the limit is ${maxImageMb} MB.`);
  }
}

export function sizeOf(layers: readonly Layer[]): number {
  return layers.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

/** How a runtime pulls the image by itself. */
export function accessOf({ registryHost, username, password, config }: AuthorizePullResponse): ImageAccess {
  return { registryHost, username, password, volumes: volumesOf(config) };
}
