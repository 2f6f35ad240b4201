import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Reason } from "@sandgate/kit/base/reasons";
import { formatReference, parseReference, type Reference } from "@sandgate/registry-client/reference";
import { canonicalHost, type RegistryAddress } from "@sandgate/registry-client/registry-address";
import {
  type Credential,
  type RegistryClient,
  RegistryError,
  type RegistryProblem,
} from "@sandgate/registry-client/registry-client";

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
  readonly digest: string;
  readonly pinnedReference: string;
  /** host[:port] */
  readonly registryHost: string;
}

const cachedMs = 60_000;
/** Answers cached at once; the oldest go first. */
const maxCached = 10_000;

const reasons: Record<RegistryProblem, Reason> = {
  unauthorized: "IMAGE_PULL_UNAUTHORIZED",
  not_found: "IMAGE_NOT_FOUND_IN_REGISTRY",
  refused_address: "REGISTRY_UNREACHABLE",
  unreachable: "REGISTRY_UNREACHABLE",
};

/**
 * Finds out whether a workspace may pull a reference, by asking the registry with the workspace's own credential. A yes is
 * cached for a minute for this workspace, reference and version of the credential, and for nobody else: every other tenant
 * has to be admitted by the registry itself.
 *
 * @param now milliseconds on any clock that doesn't jump
 */
export function createPullAuthorizer(client: RegistryClient, now: () => number = () => performance.now()) {
  const cached = new Map<string, { digest: string; until: number }>();

  async function findDigest(request: PullRequest, reference: Reference, signal: AbortSignal): Promise<string> {
    const { registry } = request;
    const key = JSON.stringify([request.workspaceId, request.reference, registry?.id, registry?.version]);
    const hit = cached.get(key);
    if (hit && hit.until > now()) return hit.digest;
    const address = registry?.address ?? { host: canonicalHost(reference.host), scheme: undefined };
    const digest = await client.resolveDigest(address, reference, registry?.credential, signal);
    cached.delete(key);
    cached.set(key, { digest, until: now() + cachedMs });
    for (const oldest of cached.keys()) {
      if (cached.size <= maxCached) break;
      cached.delete(oldest);
    }
    return digest;
  }

  /** Throws IMAGE_PULL_UNAUTHORIZED, IMAGE_NOT_FOUND_IN_REGISTRY or REGISTRY_UNREACHABLE. */
  return async function authorizePull(request: PullRequest, signal: AbortSignal): Promise<AuthorizedPull> {
    const reference = parseReference(request.reference);
    if (reference === undefined) throw new Error(`"${request.reference}" is not a reference`);
    if (request.registry && request.registry.address.host !== canonicalHost(reference.host)) {
      throw new DomainError("IMAGE_PULL_UNAUTHORIZED", `The credential is not for ${reference.host}.`);
    }
    try {
      const digest = await findDigest(request, reference, signal);
      return { digest, pinnedReference: formatReference({ ...reference, digest }), registryHost: reference.host };
    } catch (error) {
      if (!(error instanceof RegistryError)) throw error;
      throw new DomainError(reasons[error.problem], error.message, { cause: error });
    }
  };
}
