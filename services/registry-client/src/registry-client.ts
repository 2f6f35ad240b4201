import { createHash } from "node:crypto";
import type { AllowedHosts } from "./allowed-hosts.ts";
import { parseChallenge } from "./challenge.ts";
import { AddressRefused, type GuardedRequest, type GuardedResponse } from "./guarded-request.ts";
import { hasDigest, type Manifest, ManifestRefused, readManifest } from "./manifest.ts";
import { dockerHub, type Reference } from "./reference.ts";
import type { RegistryAddress } from "./registry-address.ts";

export interface Credential {
  readonly username: string;
  readonly password: string;
}

/**
 * `unauthorized`: the registry refuses the credential, or access with it. `not_found`: it has no such image.
 * `refused_address`: it is at an address where only registries named by the operator may be. `unreachable`: no usable answer.
 */
export type RegistryProblem = "unauthorized" | "not_found" | "refused_address" | "unreachable";

export class RegistryError extends Error {
  readonly problem: RegistryProblem;

  constructor(problem: RegistryProblem, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "RegistryError";
    this.problem = problem;
  }
}

/** Speaks the distribution API (opencontainers/distribution-spec) with registries, as far as this service needs it. */
export interface RegistryClient {
  /** Tries a credential. Throws a RegistryError: `unauthorized` when it is refused, `not_found` when there is no registry. */
  checkCredential(address: RegistryAddress, credential: Credential, signal: AbortSignal): Promise<void>;
  /**
   * The digest of what the reference names now, if this credential may pull it. An engine doesn't pull an image whose config
   * it already has, even if that is another tenant's, so a manifest alone proves nothing: the registry must give out the
   * config itself, of every image of an index that an engine of this machine's architecture may choose. Throws a RegistryError.
   */
  resolveDigest(
    address: RegistryAddress,
    reference: Reference,
    credential: Credential | undefined,
    signal: AbortSignal,
  ): Promise<string>;
}

/** For all the requests of one call; below the deadline of the RPC that makes it. */
const timeoutMs = 8_000;

const manifestTypes = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
].join(", ");
/** Images of an index for one architecture; official indexes have up to four. */
const maxCandidates = 16;

export function createRegistryClient(request: GuardedRequest, allowed: AllowedHosts): RegistryClient {
  /** Runs `work` over https, and over http where that is allowed and https did not connect. */
  async function withScheme<T>(
    { host, scheme }: RegistryAddress,
    signal: AbortSignal,
    work: (base: URL, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const apiHost = host === dockerHub ? "registry-1.docker.io" : host;
    const schemes = scheme !== undefined ? [scheme] : allowed.names(host) ? ["https", "http"] : ["https"];
    const limited = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    let failure: unknown;
    for (const each of schemes) {
      try {
        return await work(new URL(`${each}://${apiHost}/v2/`), limited);
      } catch (error) {
        if (error instanceof RegistryError) throw error;
        if (error instanceof AddressRefused) throw new RegistryError("refused_address", error.message, error);
        failure ??= error;
      }
    }
    throw new RegistryError("unreachable", `The registry ${host} could not be reached.`, failure);
  }

  /** Sends requests: the first again with the authorization that the registry's challenge asks for, later ones with it at once. */
  function openSession(credential: Credential | undefined, signal: AbortSignal) {
    let authorization: string | undefined;
    return async (url: URL, headers: Readonly<Record<string, string>> = {}): Promise<GuardedResponse> => {
      const response = await request(url, { headers, signal, authorization });
      // A challenge from where the registry redirects to is not the registry's.
      if (response.status !== 401 || response.url.origin !== url.origin) return response;
      const challenge = parseChallenge(response.headers["www-authenticate"]);
      if (challenge?.scheme === "bearer") {
        authorization = `Bearer ${await fetchToken(challenge, url, credential, signal)}`;
      } else if (challenge && credential) {
        authorization = basic(credential);
      } else {
        return response;
      }
      return request(url, { headers, signal, authorization });
    };
  }

  /**
   * Gets a token (https://distribution.github.io/distribution/spec/auth/token/). The realm may be another host than the
   * registry's (Docker Hub's is); it is checked like any other, so without TLS it gets no credential unless it is named.
   */
  async function fetchToken(
    { realm, service, scope }: { realm: string; service: string | undefined; scope: string | undefined },
    registry: URL,
    credential: Credential | undefined,
    signal: AbortSignal,
  ): Promise<string> {
    if (!URL.canParse(realm))
      throw new RegistryError("unreachable", `${registry.host} names a token service without a valid URL.`);
    const url = new URL(realm);
    if (registry.protocol === "https:" && url.protocol !== "https:") {
      throw new RegistryError("refused_address", `${registry.host} names a token service without TLS.`);
    }
    if (service !== undefined) url.searchParams.set("service", service);
    if (scope !== undefined) url.searchParams.set("scope", scope);
    if (credential !== undefined) url.searchParams.set("account", credential.username);
    const response = await request(url, { signal, authorization: credential && basic(credential) });
    if ([400, 401, 403, 404].includes(response.status)) {
      throw new RegistryError("unauthorized", `The token service of ${registry.host} refused the credential.`);
    }
    const token = response.status === 200 ? readToken(response.body) : undefined;
    if (token === undefined) {
      throw new RegistryError(
        "unreachable",
        `The token service of ${registry.host} answered with status ${response.status} and no token.`,
      );
    }
    return token;
  }

  return {
    checkCredential(address, credential, signal) {
      return withScheme(address, signal, async (base, limited) => {
        const response = await openSession(credential, limited)(base);
        if (response.status !== 200) throw problemOf(response, address.host);
      });
    },

    resolveDigest(address, { repository, tag = "latest", digest }, credential, signal) {
      return withScheme(address, signal, async (base, limited) => {
        const send = openSession(credential, limited);

        async function fetchBody(path: string, expected?: string): Promise<Buffer> {
          const headers = path.startsWith("manifests/") ? { accept: manifestTypes } : {};
          const response = await send(new URL(`${repository}/${path}`, base), headers);
          if (response.status !== 200) throw problemOf(response, address.host);
          if (expected === undefined || hasDigest(response.body, expected)) return response.body;
          throw new RegistryError(
            "not_found",
            `The registry ${address.host} answered with something other than ${expected}.`,
          );
        }

        async function checkAccess(manifest: Manifest): Promise<void> {
          if (manifest.kind === "index") throw new ManifestRefused("is an index within an index");
          await fetchBody(`blobs/${manifest.config}`, manifest.config);
        }

        try {
          const body = await fetchBody(`manifests/${digest ?? tag}`, digest);
          const manifest = readManifest(body);
          if (manifest.kind === "image") {
            await checkAccess(manifest);
          } else {
            const { candidates } = manifest;
            if (candidates.length === 0) throw new ManifestRefused("has no image for linux on this architecture");
            if (candidates.length > maxCandidates)
              throw new ManifestRefused("has too many images for this architecture");
            await Promise.all(
              candidates.map(async (each) => checkAccess(readManifest(await fetchBody(`manifests/${each}`, each)))),
            );
          }
          return digest ?? `sha256:${createHash("sha256").update(body).digest("hex")}`;
        } catch (error) {
          if (!(error instanceof ManifestRefused)) throw error;
          throw new RegistryError("not_found", `The manifest at ${address.host} ${error.message}.`, error);
        }
      });
    },
  };
}

function problemOf({ status }: GuardedResponse, host: string): RegistryError {
  if (status === 401 || status === 403)
    return new RegistryError("unauthorized", `The registry ${host} refused access.`);
  if (status === 404) return new RegistryError("not_found", `The registry ${host} has no such image.`);
  return new RegistryError("unreachable", `The registry ${host} answered with status ${status}.`);
}

function basic({ username, password }: Credential): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}

function readToken(body: Buffer): string | undefined {
  try {
    const answer: unknown = JSON.parse(body.toString());
    if (typeof answer !== "object" || answer === null) return undefined;
    if ("token" in answer && typeof answer.token === "string") return answer.token;
    return "access_token" in answer && typeof answer.access_token === "string" ? answer.access_token : undefined;
  } catch {
    return undefined;
  }
}
