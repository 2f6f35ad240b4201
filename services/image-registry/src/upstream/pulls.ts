import { DomainError } from "@sandgate/kit/base/domain-error";
import { monotonicMs } from "@sandgate/kit/base/time";
import { dockerHub, formatReference, parseReference, type Reference } from "@sandgate/registry-client/reference";
import { canonicalHost, isAtRegistry, type RegistryAddress } from "@sandgate/registry-client/registry-address";
import {
  type Credential,
  type Layer,
  pullFailureReasons,
  type RegistryClient,
  RegistryError,
  type RegistryImage,
} from "@sandgate/registry-client/registry-client";
import { LRUCache } from "lru-cache";
import type { VerifiedLayer } from "../domain/verified-layers.ts";

export interface PullRequest {
  readonly workspaceId: string;
  /** host/repository:tag or host/repository@digest */
  readonly reference: string;
  /** The workspace's own credential; undefined: pull anonymously. */
  readonly registry: PullRegistry | undefined;
}

export interface PullRegistry {
  readonly id: string;
  readonly version: number;
  readonly address: RegistryAddress;
  readonly credential: Credential;
}

export interface AuthorizedPull {
  readonly image: RegistryImage;
  /** host/repository@digest of the image for the engine's architecture. */
  readonly pinnedReference: string;
  readonly address: RegistryAddress;
  readonly repository: string;
  /** Digests of the layers that the registry is known to serve, and serves to this workspace. */
  readonly verified: ReadonlySet<string>;
}

interface CachedImage {
  readonly image: RegistryImage;
  readonly verified: Set<string>;
  readonly until: number;
  /** Whether its renewal has begun. */
  isRenewed: boolean;
}

const cachedMs = 60_000;
/** How long before its end an approval is renewed, so that frequent pulls don't wait for the registry. */
const renewalMs = 30_000;
/** The size of the cached manifests and configs; the least recently used go first. */
const maxCachedBytes = 64 * 1024 * 1024;
/** Paused registries that are remembered; a forgotten one is simply asked again. */
const maxPaused = 1_000;

/**
 * Finds out whether a workspace may pull a reference, by asking the registry with the workspace's own credential. An
 * approval is cached for a minute, for this workspace, reference and version of the credential alone: the registry
 * itself has to approve every other tenant. An approval that is used in the second half of its minute is renewed
 * meanwhile.
 *
 * Engines share layers among all images, so each layer is checked too. The workspace's credential must be able to read
 * a layer that this registry has served before, to whomever; the caller has to download and verify the others.
 *
 * @param now milliseconds on any clock that doesn't jump
 */
export function createPullAuthorizer(
  client: Pick<RegistryClient, "resolveImage" | "checkBlobs">,
  findVerified: (host: string, digests: readonly string[]) => Promise<VerifiedLayer[]>,
  now: () => number = monotonicMs,
) {
  const cached = new LRUCache<string, CachedImage>({
    maxSize: maxCachedBytes,
    sizeCalculation: ({ image }) => sizeOf(image),
  });
  /** Requests in progress, by the keys of `cached`. */
  const asking = new Map<string, Promise<CachedImage>>();
  const paused = new LRUCache<string, { error: RegistryError; until: number }>({ max: maxPaused });

  /** Which of these layers the registry is known to serve, with the content that the image's config names. */
  async function findServed(host: string, layers: readonly Layer[]): Promise<string[]> {
    const diffIds = new Map(layers.map(({ digest, diffId }) => [digest, diffId]));
    const found = await findVerified(host, [...diffIds.keys()]);
    const other = found.find(({ digest, diffId }) => diffIds.get(digest) !== diffId);
    if (other || layers.some(({ digest, diffId }) => diffIds.get(digest) !== diffId)) {
      throw new RegistryError(
        "not_found",
        `The image at the registry ${host} has a layer that its config doesn't name.`,
      );
    }
    return found.map(({ digest }) => digest);
  }

  /** Repeats the answer of a registry that takes no requests with this credential for a while, with the rest of it. */
  async function unlessPaused<T>(key: string, work: () => Promise<T>): Promise<T> {
    const pause = paused.get(key);
    const leftMs = pause ? pause.until - now() : 0;
    if (pause && leftMs > 0) {
      const { problem, message } = pause.error;
      throw new RegistryError(problem, message, { cause: pause.error, retryAfterSeconds: Math.ceil(leftMs / 1000) });
    }
    try {
      return await work();
    } catch (error) {
      if (error instanceof RegistryError && error.retryAfterSeconds !== undefined) {
        paused.set(key, { error, until: now() + error.retryAfterSeconds * 1000 });
      }
      throw error;
    }
  }

  async function findImage(
    { workspaceId, reference: text, registry }: PullRequest,
    reference: Reference,
    address: RegistryAddress,
    signal: AbortSignal,
  ): Promise<CachedImage> {
    const key = JSON.stringify([workspaceId, text, registry?.id, registry?.version]);
    const credential = registry?.credential;
    const ask = (asker: AbortSignal) => askFor(key, resolveImage(reference, address, credential, asker));
    let hit = findCached(key);
    if (!hit && asking.has(key)) {
      // Many sandboxes of one image ask together. A failure concerns the caller that asked: its time may have been
      // over.
      await asking.get(key)?.catch(() => {});
      signal.throwIfAborted();
      hit = findCached(key);
    }
    if (!hit) return ask(signal);
    if (!hit.isRenewed && hit.until - now() <= renewalMs) {
      hit.isRenewed = true;
      ask(AbortSignal.timeout(renewalMs)).catch((error: unknown) => {
        // The next caller learns why. A registry that can't answer now is asked again when the minute is over.
        if (error instanceof RegistryError && isRefusal(error)) cached.delete(key);
      });
    }
    // Another workspace's download may have verified them since.
    const { verified } = hit;
    const open = hit.image.layers.filter(({ digest }) => !verified.has(digest));
    const asked = open.length === 0 ? [] : await findServed(address.host, open);
    if (asked.length > 0) await client.checkBlobs(address, reference.repository, asked, credential, signal);
    for (const digest of asked) verified.add(digest);
    return hit;
  }

  function findCached(key: string): CachedImage | undefined {
    const entry = cached.get(key);
    return entry && entry.until > now() ? entry : undefined;
  }

  async function askFor(key: string, found: Promise<CachedImage>): Promise<CachedImage> {
    asking.set(key, found);
    try {
      cached.set(key, await found);
      return await found;
    } finally {
      if (asking.get(key) === found) asking.delete(key);
    }
  }

  async function resolveImage(
    reference: Reference,
    address: RegistryAddress,
    credential: Credential | undefined,
    signal: AbortSignal,
  ): Promise<CachedImage> {
    const verified = new Set<string>();
    const image = await client.resolveImage(address, reference, credential, signal, async (layers) => {
      for (const digest of await findServed(address.host, layers)) verified.add(digest);
      return [...verified];
    });
    return { image, verified, until: now() + cachedMs, isRenewed: false };
  }

  /** Throws IMAGE_PULL_UNAUTHORIZED, IMAGE_NOT_FOUND_IN_REGISTRY or REGISTRY_UNREACHABLE. */
  return async function authorizePull(request: PullRequest, signal: AbortSignal): Promise<AuthorizedPull> {
    const { registry } = request;
    const reference = parseReference(request.reference);
    if (reference === undefined) {
      throw new DomainError("IMAGE_NOT_FOUND_IN_REGISTRY", `"${request.reference}" is not an image reference.`);
    }
    if (registry && !isAtRegistry(reference.host, registry.address)) {
      throw new DomainError("IMAGE_PULL_UNAUTHORIZED", `The credential is not for ${reference.host}.`);
    }
    const address = registry?.address ?? { host: canonicalHost(reference.host), scheme: undefined };
    // The kubelet knows a credential for Docker Hub by this name alone. Others keep the port that makes them hosts.
    const host = address.host === dockerHub ? dockerHub : reference.host;
    try {
      const { image, verified } = await unlessPaused(
        JSON.stringify([address.host, registry?.id, registry?.version]),
        () => findImage(request, reference, address, signal),
      );
      return {
        image,
        pinnedReference: formatReference({ ...reference, host, digest: image.manifestDigest }),
        address,
        repository: reference.repository,
        verified,
      };
    } catch (error) {
      if (!(error instanceof RegistryError)) throw error;
      throw new DomainError(pullFailureReasons[error.problem], error.message, {
        cause: error,
        retryAfterSeconds: error.retryAfterSeconds,
      });
    }
  };
}

function isRefusal({ problem }: RegistryError): boolean {
  return problem === "unauthorized" || problem === "not_found";
}

function sizeOf({ manifest, config, layers }: RegistryImage): number {
  return manifest.length + config.content.length + 500 * (layers.length + 1);
}
