import { mebibyte } from "@sandgate/kit/base/sizes";
import { LRUCache } from "lru-cache";
import type { AllowedHosts } from "./allowed-hosts.ts";
import { createContentCache } from "./content-cache.ts";
import {
  AddressRefused,
  discard,
  type GuardedRequest,
  type GuardedResponse,
  openConnections,
  readBody,
} from "./guarded-request.ts";
import { type Layer, type RegistryImage, readImage } from "./image.ts";
import { ManifestRefused } from "./manifest.ts";
import { dockerHub, type Reference } from "./reference.ts";
import type { RegistryAddress } from "./registry-address.ts";
import { problemOf, RegistryError } from "./registry-error.ts";
import { openRepository, type RegistryCaches, type Repository } from "./repository.ts";
import { type Credential, openSession } from "./session.ts";

export type { Layer, RegistryImage } from "./image.ts";
export { pullFailureReasons, RegistryError, type RegistryProblem } from "./registry-error.ts";
export type { Credential } from "./session.ts";

/** Blobs of one repository, over connections that are kept until `close`. */
export interface BlobSource {
  /**
   * Opens a blob. Throws a RegistryError.
   *
   * @param from the first byte that is wanted; the answer begins at 0 where its status is 200, and there where it is
   * 206
   */
  open(digest: string, from: number, signal: AbortSignal): Promise<GuardedResponse>;
  close(): void;
}

/** Speaks the distribution API (opencontainers/distribution-spec) with registries, as far as the platform needs it. */
export interface RegistryClient {
  /**
   * Tries a credential. Throws a RegistryError: `unauthorized` if it is refused, `not_found` if there is no registry.
   */
  checkCredential(address: RegistryAddress, credential: Credential, signal: AbortSignal): Promise<void>;
  /**
   * What the reference names now, if this credential may pull it: of an index, the image for this machine's
   * architecture. Manifests and configs that this host gave out before are only asked for (HEAD), with the credential.
   * So are the layers of which `chooseAsked` says so, once it has been given all of them. Throws a RegistryError.
   */
  resolveImage(
    address: RegistryAddress,
    reference: Reference,
    credential: Credential | undefined,
    signal: AbortSignal,
    chooseAsked: (layers: readonly Layer[]) => Promise<readonly string[]>,
  ): Promise<RegistryImage>;
  /** Asks whether a repository gives out these blobs to this credential. Throws a RegistryError when it doesn't. */
  checkBlobs(
    address: RegistryAddress,
    repository: string,
    digests: readonly string[],
    credential: Credential | undefined,
    signal: AbortSignal,
  ): Promise<void>;
  openBlobs(address: RegistryAddress, repository: string, credential: Credential | undefined): BlobSource;
}

/** For trying a credential, below the deadline of the request that does. */
const checkTimeoutMs = 8_000;
/** For all that is asked about an image at once, perhaps 130 questions. */
export const imageTimeoutMs = 20_000;
/** Until the answer to `open` begins. */
const openTimeoutMs = 20_000;

/** Manifests and configs; most take a few KB. */
const cacheBytes = 32 * mebibyte;
/** Tags that are known to have been read. */
const maxTags = 10_000;

/** Creates a client that remembers manifests, configs and tags; `allowed` decides where plain http may be used. */
export function createRegistryClient(request: GuardedRequest, allowed: AllowedHosts): RegistryClient {
  const caches: RegistryCaches = {
    contents: createContentCache(cacheBytes),
    tags: new LRUCache({ max: maxTags }),
  };

  /** Speaks with one repository for the time of one call. */
  async function withRepository<T>(
    address: RegistryAddress,
    name: string,
    credential: Credential | undefined,
    signal: AbortSignal,
    work: (repository: Repository) => Promise<T>,
  ): Promise<T> {
    const connections = openConnections();
    const { host } = address;
    const limited = limit(signal, imageTimeoutMs);
    try {
      return await withScheme(allowed, address, (base) => {
        const send = openSession(request, credential, connections);
        return work(openRepository({ host, base: new URL(`${name}/`, base), send, caches, signal: limited }));
      });
    } finally {
      connections.close();
    }
  }

  return {
    checkCredential(address, credential, signal) {
      const limited = limit(signal, checkTimeoutMs);
      return withScheme(allowed, address, async (base) => {
        const response = await openSession(request, credential)(base, { signal: limited });
        await readBody(response);
        if (response.status !== 200) throw problemOf(response, address.host);
      });
    },

    resolveImage(address, reference, credential, signal, chooseAsked) {
      return withRepository(address, reference.repository, credential, signal, async (repository) => {
        try {
          return await readImage(repository, reference, chooseAsked);
        } catch (error) {
          if (!(error instanceof ManifestRefused)) throw error;
          throw new RegistryError("not_found", `The manifest at the registry ${address.host} ${error.message}.`, {
            cause: error,
          });
        }
      });
    },

    checkBlobs(address, repository, [first, ...others], credential, signal) {
      return withRepository(address, repository, credential, signal, async ({ checkBlob }) => {
        // Alone, since its answer gives the authorization for the others.
        if (first !== undefined) await checkBlob(first);
        await Promise.all(others.map(checkBlob));
      });
    },

    openBlobs: (address, repository, credential) =>
      openBlobSource({ request, allowed, address, repository, credential }),
  };
}

function openBlobSource(o: {
  request: GuardedRequest;
  allowed: AllowedHosts;
  address: RegistryAddress;
  repository: string;
  credential: Credential | undefined;
}): BlobSource {
  const { address, credential, request } = o;
  const connections = openConnections();
  // One for each scheme: an authorization from https is not sent without TLS.
  const sessions = {
    "https:": openSession(request, credential, connections),
    "http:": openSession(request, credential, connections),
  };

  async function get(base: URL, path: string, from: number, signal: AbortSignal): Promise<GuardedResponse> {
    const send = sessions[base.protocol === "https:" ? "https:" : "http:"];
    const url = new URL(`${o.repository}/${path}`, base);
    const response = await send(url, { headers: from > 0 ? { range: `bytes=${from}-` } : {}, signal });
    if (response.status === 200 || response.status === 206) return response;
    discard(response);
    throw problemOf(response, address.host, path);
  }

  return {
    async open(digest, from, signal) {
      // The time is up for the beginning of the answer alone, not for the rest of the blob.
      const late = new AbortController();
      const timer = setTimeout(() => late.abort(), openTimeoutMs);
      const either = AbortSignal.any([signal, late.signal]);
      try {
        return await withScheme(o.allowed, address, (base) => get(base, `blobs/${digest}`, from, either));
      } finally {
        clearTimeout(timer);
      }
    },
    close: connections.close,
  };
}

/** Aborts with the caller's signal, or when the time is up. */
function limit(signal: AbortSignal, limitMs: number): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(limitMs)]);
}

/** Runs `work` over https, and over http where that is allowed and https did not connect. */
async function withScheme<T>(
  allowed: AllowedHosts,
  { host, scheme }: RegistryAddress,
  work: (base: URL) => Promise<T>,
): Promise<T> {
  const apiHost = host === dockerHub ? "registry-1.docker.io" : host;
  const schemes = scheme !== undefined ? [scheme] : allowed.names(host) ? ["https", "http"] : ["https"];
  let failure: unknown;
  for (const each of schemes) {
    try {
      return await work(new URL(`${each}://${apiHost}/v2/`));
    } catch (error) {
      if (error instanceof RegistryError) throw error;
      if (error instanceof AddressRefused) {
        throw new RegistryError("refused_address", error.message, { cause: error });
      }
      failure ??= error;
    }
  }
  throw new RegistryError("unreachable", `The registry ${host} could not be reached.`, { cause: failure });
}
