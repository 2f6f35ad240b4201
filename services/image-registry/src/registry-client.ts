import { createHash } from "node:crypto";
import type { AllowedHosts } from "./allowed-hosts.ts";
import { parseChallenge } from "./challenge.ts";
import { AddressRefused, type GuardedInit, type GuardedRequest, type GuardedResponse } from "./guarded-request.ts";
import { dockerHub, isDigest, type Reference } from "./reference.ts";

export interface Credential {
  readonly username: string;
  readonly password: string;
}

export interface RegistryAddress {
  /** host[:port] */
  readonly host: string;
  /** Undefined: https, and http after it only where the operator has named the host. */
  readonly scheme: "https" | "http" | undefined;
}

/**
 * `unauthorized`: the registry refuses the credential, or what it may do. `not_found`: it has no such manifest.
 * `refused_address`: it is where only registries named by the operator may be. `unreachable`: no usable answer.
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
  /** The digest of what the reference names now, if this credential may pull it. Throws a RegistryError. */
  resolveDigest(
    address: RegistryAddress,
    reference: Reference,
    credential: Credential | undefined,
    signal: AbortSignal,
  ): Promise<string>;
}

/** All the requests of one question; below the deadline of the call that asks. */
const timeoutMs = 8_000;

const manifestTypes = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
].join(", ");

export function createRegistryClient(request: GuardedRequest, allowed: AllowedHosts): RegistryClient {
  /** Asks at https, then at http where that is allowed; only a server that can't be talked to is asked again. */
  async function ask<T>(
    { host, scheme }: RegistryAddress,
    signal: AbortSignal,
    question: (base: URL, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const apiHost = host === dockerHub ? "registry-1.docker.io" : host;
    const schemes = scheme !== undefined ? [scheme] : allowed.names(host) ? ["https", "http"] : ["https"];
    const limited = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
    let failure: unknown;
    for (const each of schemes) {
      try {
        return await question(new URL(`${each}://${apiHost}/v2/`), limited);
      } catch (error) {
        if (error instanceof RegistryError) throw error;
        if (error instanceof AddressRefused) throw new RegistryError("refused_address", error.message, error);
        failure ??= error;
      }
    }
    throw new RegistryError("unreachable", `The registry ${host} could not be reached.`, failure);
  }

  /** Sends a request, and sends it again with what the registry's challenge asks for. */
  async function send(
    url: URL,
    credential: Credential | undefined,
    init: Omit<GuardedInit, "authorization">,
  ): Promise<GuardedResponse> {
    const response = await request(url, init);
    // A challenge from where the registry redirects to is not the registry's.
    if (response.status !== 401 || response.url.origin !== url.origin) return response;
    const challenge = parseChallenge(response.headers["www-authenticate"]);
    if (challenge?.scheme === "bearer") {
      const authorization = `Bearer ${await fetchToken(challenge, url, credential, init.signal)}`;
      return request(url, { ...init, authorization });
    }
    return challenge && credential ? request(url, { ...init, authorization: basic(credential) }) : response;
  }

  /**
   * Gets a token as https://distribution.github.io/distribution/spec/auth/token/ says. The realm may be another host than
   * the registry's (Docker Hub's is); it is judged like any other, and so gets no credential without TLS unless named.
   */
  async function fetchToken(
    { realm, service, scope }: { realm: string; service: string | undefined; scope: string | undefined },
    registry: URL,
    credential: Credential | undefined,
    signal: AbortSignal,
  ): Promise<string> {
    if (!URL.canParse(realm))
      throw new RegistryError("unreachable", `The token service of ${registry.host} has no address.`);
    const url = new URL(realm);
    if (registry.protocol === "https:" && url.protocol !== "https:") {
      throw new RegistryError("refused_address", `${registry.host} has its token service at an address without TLS.`);
    }
    if (service !== undefined) url.searchParams.set("service", service);
    if (scope !== undefined) url.searchParams.set("scope", scope);
    if (credential !== undefined) url.searchParams.set("account", credential.username);
    const response = await request(url, { signal, authorization: credential && basic(credential) });
    if ([400, 401, 403, 404].includes(response.status)) {
      throw new RegistryError("unauthorized", `The token service of ${registry.host} refuses the credential.`);
    }
    const token = response.status === 200 ? readToken(response.body) : undefined;
    if (token === undefined) {
      throw new RegistryError("unreachable", `The token service of ${registry.host} answers ${response.status}.`);
    }
    return token;
  }

  return {
    checkCredential(address, credential, signal) {
      return ask(address, signal, async (base, limited) => {
        const response = await send(base, credential, { signal: limited });
        if (response.status !== 200) throw problemOf(response, address.host);
      });
    },

    resolveDigest(address, reference, credential, signal) {
      return ask(address, signal, async (base, limited) => {
        const { repository, tag = "latest", digest } = reference;
        const url = new URL(`${repository}/manifests/${digest ?? tag}`, base);
        const init = { headers: { accept: manifestTypes }, signal: limited };
        const head = await send(url, credential, { ...init, method: "HEAD" });
        const stated = digest ?? digestOf(head);
        if (head.status === 200 && stated !== undefined) return stated;
        // Not every registry answers HEAD, or says the digest.
        const response = head.status === 200 || head.status === 405 ? await send(url, credential, init) : head;
        if (response.status !== 200) throw problemOf(response, address.host);
        return digest ?? digestOf(response) ?? `sha256:${createHash("sha256").update(response.body).digest("hex")}`;
      });
    },
  };
}

function problemOf({ status }: GuardedResponse, host: string): RegistryError {
  if (status === 401 || status === 403)
    return new RegistryError("unauthorized", `The registry ${host} refuses access.`);
  if (status === 404) return new RegistryError("not_found", `The registry ${host} has nothing there.`);
  return new RegistryError("unreachable", `The registry ${host} answers ${status}.`);
}

function digestOf({ headers }: GuardedResponse): string | undefined {
  const stated = headers["docker-content-digest"];
  return typeof stated === "string" && isDigest(stated) ? stated : undefined;
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
