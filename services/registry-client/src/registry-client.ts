import { createHash } from "node:crypto";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { AllowedHosts } from "./allowed-hosts.ts";
import { parseChallenge } from "./challenge.ts";
import { createContentCache } from "./content-cache.ts";
import {
  AddressRefused,
  type Connections,
  discard,
  type GuardedRequest,
  type GuardedResponse,
  openConnections,
  readBody,
} from "./guarded-request.ts";
import { type Descriptor, hasDigest, ManifestRefused, readDiffIds, readManifest } from "./manifest.ts";
import { dockerHub, isDigest, type Reference } from "./reference.ts";
import type { RegistryAddress } from "./registry-address.ts";

export interface Credential {
  readonly username: string;
  readonly password: string;
}

/**
 * `unauthorized`: the registry refuses the credential, or access with it. `not_found`: it has no such image.
 * `refused_address`: it is at an address where only registries named by the operator may be. `rate_limited`: it takes no
 * more requests for a while. `unreachable`: no usable answer.
 */
export type RegistryProblem = "unauthorized" | "not_found" | "refused_address" | "rate_limited" | "unreachable";

export class RegistryError extends Error {
  readonly problem: RegistryProblem;
  /** Of `rate_limited`, where the registry says so. */
  readonly retryAfterSeconds: number | undefined;

  constructor(problem: RegistryProblem, message: string, o: { cause?: unknown; retryAfterSeconds?: number } = {}) {
    super(message, o.cause === undefined ? undefined : { cause: o.cause });
    this.name = "RegistryError";
    this.problem = problem;
    this.retryAfterSeconds = o.retryAfterSeconds;
  }
}

/** What a problem at the registry is to a pull, in the platform's reasons. */
export const pullFailureReasons = {
  unauthorized: "IMAGE_PULL_UNAUTHORIZED",
  not_found: "IMAGE_NOT_FOUND_IN_REGISTRY",
  refused_address: "REGISTRY_UNREACHABLE",
  rate_limited: "REGISTRY_UNREACHABLE",
  unreachable: "REGISTRY_UNREACHABLE",
} as const satisfies Record<RegistryProblem, string>;

export interface Layer extends Descriptor {
  /** The digest of its unpacked content, as the image's config has it. Engines tell layers apart by this. */
  readonly diffId: string;
}

/** An image as its registry gives it out to a credential. */
export interface RegistryImage {
  /** Of what the reference names, an index perhaps. */
  readonly digest: string;
  /** Of the image for this architecture. */
  readonly manifestDigest: string;
  readonly manifest: Buffer;
  readonly mediaType: string;
  readonly config: Descriptor & { readonly content: Buffer };
  readonly layers: readonly Layer[];
}

/** Blobs of one repository, over connections that are kept until `close`. */
export interface BlobSource {
  /**
   * Opens a blob. Throws a RegistryError.
   *
   * @param from the first byte that is wanted; the answer begins at 0 where its status is 200, and there where it is 206
   */
  open(digest: string, from: number, signal: AbortSignal): Promise<GuardedResponse>;
  close(): void;
}

/** Speaks the distribution API (opencontainers/distribution-spec) with registries, as far as the platform needs it. */
export interface RegistryClient {
  /** Tries a credential. Throws a RegistryError: `unauthorized` when it is refused, `not_found` when there is no registry. */
  checkCredential(address: RegistryAddress, credential: Credential, signal: AbortSignal): Promise<void>;
  /**
   * What the reference names now, if this credential may pull it: of an index, the image for this machine's architecture.
   * Manifests and configs that this host gave out before are only asked for (HEAD), with the credential. So are the layers
   * of which `chooseAsked` says so, once it has been given all of them. Throws a RegistryError.
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
/** For all that is asked about an image, perhaps 130 questions; below the deadline of AuthorizePull. */
const imageTimeoutMs = 20_000;
/** Until the answer to `open` begins. */
const openTimeoutMs = 20_000;

const manifestTypes = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
].join(", ");
/** Manifests and configs; most take a few KB. */
const cacheBytes = 32 * mebibyte;
/** Tags whose digest is remembered. */
const maxTags = 10_000;
const maxConfigBytes = mebibyte;

interface SendOptions {
  readonly method?: "GET" | "HEAD";
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

type Send = (url: URL, options: SendOptions) => Promise<GuardedResponse>;

/** Creates a client that remembers manifests, configs and the digests of tags; `allowed` decides where plain http may be used. */
export function createRegistryClient(request: GuardedRequest, allowed: AllowedHosts): RegistryClient {
  // Only for the host that gave it out: that another one names a digest doesn't show that it has the content.
  const known = createContentCache(cacheBytes);
  const lastDigests = new Map<string, string>();

  /** Runs `work` over https, and over http where that is allowed and https did not connect. */
  async function withScheme<T>(
    { host, scheme }: RegistryAddress,
    signal: AbortSignal,
    work: (base: URL, signal: AbortSignal) => Promise<T>,
    limitMs: number,
  ): Promise<T> {
    const apiHost = host === dockerHub ? "registry-1.docker.io" : host;
    const schemes = scheme !== undefined ? [scheme] : allowed.names(host) ? ["https", "http"] : ["https"];
    const limited = Number.isFinite(limitMs) ? AbortSignal.any([signal, AbortSignal.timeout(limitMs)]) : signal;
    let failure: unknown;
    for (const each of schemes) {
      try {
        return await work(new URL(`${each}://${apiHost}/v2/`), limited);
      } catch (error) {
        if (error instanceof RegistryError) throw error;
        if (error instanceof AddressRefused)
          throw new RegistryError("refused_address", error.message, { cause: error });
        failure ??= error;
      }
    }
    throw new RegistryError("unreachable", `The registry ${host} could not be reached.`, { cause: failure });
  }

  /** Sends requests: the first again with the authorization that the registry's challenge asks for, later ones with it at once. */
  function openSession(credential: Credential | undefined, connections?: Connections): Send {
    let authorization: string | undefined;
    return async (url, options) => {
      const response = await request(url, { ...options, authorization, connections });
      // A challenge from where the registry redirects to is not the registry's.
      if (response.status !== 401 || response.url.origin !== url.origin) return response;
      const challenge = parseChallenge(response.headers["www-authenticate"]);
      if (challenge?.scheme === "bearer") {
        discard(response);
        authorization = `Bearer ${await fetchToken(challenge, url, credential, options.signal)}`;
      } else if (challenge && credential) {
        discard(response);
        authorization = basic(credential);
      } else {
        return response;
      }
      return request(url, { ...options, authorization, connections });
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
    const body = await readBody(response);
    if (response.status === 429) throw problemOf(response, url.host);
    if ([400, 401, 403, 404].includes(response.status)) {
      throw new RegistryError("unauthorized", `The token service of ${registry.host} refused the credential.`);
    }
    const token = response.status === 200 ? readToken(body) : undefined;
    if (token === undefined) {
      throw new RegistryError(
        "unreachable",
        `The token service of ${registry.host} answered with status ${response.status} and no token.`,
      );
    }
    return token;
  }

  /** Speaks with one repository for the time of one call. */
  async function withRepository<T>(
    address: RegistryAddress,
    name: string,
    credential: Credential | undefined,
    signal: AbortSignal,
    work: (repository: Repository) => Promise<T>,
  ): Promise<T> {
    const connections = openConnections();
    try {
      return await withScheme(
        address,
        signal,
        (base, limited) =>
          work(openRepository(address.host, new URL(`${name}/`, base), openSession(credential, connections), limited)),
        imageTimeoutMs,
      );
    } finally {
      connections.close();
    }
  }

  function openRepository(host: string, base: URL, send: Send, signal: AbortSignal) {
    async function get(path: string): Promise<Buffer> {
      const response = await send(new URL(path, base), { headers: headersFor(path), signal });
      if (response.status === 200) return readBody(response);
      discard(response);
      throw problemOf(response, host, path);
    }

    async function head(path: string): Promise<GuardedResponse> {
      const response = await send(new URL(path, base), { method: "HEAD", headers: headersFor(path), signal });
      discard(response);
      return response;
    }

    /** Asks whether the registry would give this out. */
    async function check(path: string): Promise<void> {
      const asked = await head(path);
      if (asked.status === 200) return;
      // Some registries redirect to storage with a signature for GET alone, and some don't know HEAD.
      if (asked.url.host === base.host && ![405, 501].includes(asked.status)) throw problemOf(asked, host, path);
      const begun = await send(new URL(path, base), { headers: { ...headersFor(path), range: "bytes=0-0" }, signal });
      begun.body.destroy();
      if (begun.status !== 200 && begun.status !== 206) throw problemOf(begun, host, path);
    }

    /** What has this digest; `isGivenOut` settles once the registry has given it out, or would do so again. */
    async function fetchContent(path: string, digest: string): Promise<{ content: Buffer; isGivenOut: Promise<void> }> {
      const content = known.get(host, digest);
      if (content) {
        const isGivenOut = check(path);
        isGivenOut.catch(() => {});
        return { content, isGivenOut };
      }
      const body = await get(path);
      if (!hasDigest(body, digest)) {
        throw new RegistryError("not_found", `The registry ${host} answers with something other than ${digest}.`);
      }
      known.set(host, digest, body);
      return { content: body, isGivenOut: Promise.resolve() };
    }

    return {
      checkBlob: (digest: string) => check(`blobs/${digest}`),
      fetchBlob: (digest: string) => fetchContent(`blobs/${digest}`, digest),
      fetchManifest: (digest: string) => fetchContent(`manifests/${digest}`, digest),

      /** What a tag names now. Registries count the manifests that they give out, so one that is known is only asked for. */
      async fetchTagged(tag: string): Promise<{ digest: string; content: Buffer }> {
        const path = `manifests/${tag}`;
        const place = `${host}${base.pathname}${tag}`;
        if (lastDigests.has(place)) {
          const asked = await head(path);
          const digest = String(asked.headers["docker-content-digest"]);
          const content = asked.status === 200 && isDigest(digest) ? known.get(host, digest) : undefined;
          if (content) return { digest, content };
          if ([401, 403, 404, 429].includes(asked.status)) throw problemOf(asked, host, path);
        }
        const content = await get(path);
        const digest = `sha256:${createHash("sha256").update(content).digest("hex")}`;
        known.set(host, digest, content);
        lastDigests.delete(place);
        lastDigests.set(place, digest);
        for (const oldest of lastDigests.keys()) {
          if (lastDigests.size <= maxTags) break;
          lastDigests.delete(oldest);
        }
        return { digest, content };
      },
    };
  }
  type Repository = ReturnType<typeof openRepository>;

  /** The image's manifest: of an index, the one for this architecture. */
  async function chooseImage(repository: Repository, digest: string, content: Buffer) {
    const named = readManifest(content);
    if (named.kind === "image") {
      return { manifestDigest: digest, manifest: content, image: named, isGivenOut: Promise.resolve() };
    }
    const [manifestDigest] = named.candidates;
    if (manifestDigest === undefined) throw new ManifestRefused("has no image for linux on this architecture");
    const { content: manifest, isGivenOut } = await repository.fetchManifest(manifestDigest);
    const image = readManifest(manifest);
    if (image.kind === "index") throw new ManifestRefused("is an index within an index");
    return { manifestDigest, manifest, image, isGivenOut };
  }

  async function readImage(
    repository: Repository,
    { tag = "latest", digest: pinned }: Reference,
    chooseAsked: (layers: readonly Layer[]) => Promise<readonly string[]>,
  ): Promise<RegistryImage> {
    const named = pinned === undefined ? await repository.fetchTagged(tag) : await repository.fetchManifest(pinned);
    // First and alone, since its answer gives the authorization for the others.
    if ("isGivenOut" in named) await named.isGivenOut;
    const digest = "digest" in named ? named.digest : (pinned ?? "");
    const { manifestDigest, manifest, image, isGivenOut } = await chooseImage(repository, digest, named.content);
    const { config, mediaType } = image;
    if (config.size > maxConfigBytes) throw new ManifestRefused("names a config that is too large");
    const { content, isGivenOut: isConfigGivenOut } = await repository.fetchBlob(config.digest);
    // An engine would refuse it, having asked for the size that the manifest has.
    if (content.length !== config.size) throw new ManifestRefused("names a config of another size");
    const diffIds = readDiffIds(content);
    if (diffIds.length !== image.layers.length) throw new ManifestRefused("has other layers than the image's config");
    const layers = image.layers.map((layer, index) => ({ ...layer, diffId: diffIds[index] ?? "" }));
    const asked = await chooseAsked(layers);
    await Promise.all([isGivenOut, isConfigGivenOut, ...asked.map(repository.checkBlob)]);
    return { digest, manifestDigest, manifest, mediaType, config: { ...config, content }, layers };
  }

  return {
    checkCredential(address, credential, signal) {
      const check = async (base: URL, limited: AbortSignal) => {
        const response = await openSession(credential)(base, { signal: limited });
        await readBody(response);
        if (response.status !== 200) throw problemOf(response, address.host);
      };
      return withScheme(address, signal, check, checkTimeoutMs);
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

    checkBlobs(address, repository, digests, credential, signal) {
      return withRepository(address, repository, credential, signal, async ({ checkBlob }) => {
        await Promise.all(digests.map(checkBlob));
      });
    },

    openBlobs(address, repository, credential) {
      const connections = openConnections();
      // One for each scheme: an authorization from https is not sent without TLS.
      const sessions = {
        "https:": openSession(credential, connections),
        "http:": openSession(credential, connections),
      };
      return {
        async open(digest, from, signal) {
          const late = new AbortController();
          const timer = setTimeout(() => late.abort(), openTimeoutMs);
          try {
            return await withScheme(
              address,
              AbortSignal.any([signal, late.signal]),
              async (base, either) => {
                const path = `blobs/${digest}`;
                const response = await sessions[base.protocol === "https:" ? "https:" : "http:"](
                  new URL(`${repository}/${path}`, base),
                  { headers: from > 0 ? { range: `bytes=${from}-` } : {}, signal: either },
                );
                if (response.status === 200 || response.status === 206) return response;
                discard(response);
                throw problemOf(response, address.host, path);
              },
              Number.POSITIVE_INFINITY,
            );
          } finally {
            clearTimeout(timer);
          }
        },
        close: connections.close,
      };
    },
  };
}

function headersFor(path: string): Readonly<Record<string, string>> {
  return path.startsWith("manifests/") ? { accept: manifestTypes } : {};
}

function problemOf({ status, headers }: GuardedResponse, host: string, path = "v2/"): RegistryError {
  if (status === 401 || status === 403)
    return new RegistryError("unauthorized", `The registry ${host} refused access to ${path}.`);
  if (status === 404) return new RegistryError("not_found", `The registry ${host} has no ${path}.`);
  if (status === 429) {
    const retryAfterSeconds = readRetryAfter(headers["retry-after"]);
    const when = retryAfterSeconds === undefined ? "for now" : `until ${timeIn(retryAfterSeconds)}`;
    return new RegistryError(
      "rate_limited",
      `The registry ${host} takes no more requests ${when} (429 Too Many Requests).`,
      retryAfterSeconds === undefined ? {} : { retryAfterSeconds },
    );
  }
  return new RegistryError("unreachable", `The registry ${host} answered with status ${status}.`);
}

/** The time that many seconds from now, to the second. */
function timeIn(seconds: number): string {
  return new Date(Date.now() + seconds * 1000).toISOString().replace(/\.\d+/, "");
}

/** Seconds, or a date (RFC 9110, 10.2.3). */
function readRetryAfter(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const seconds = /^\d{1,9}$/.test(header) ? Number(header) : Math.ceil((Date.parse(header) - Date.now()) / 1000);
  return Number.isNaN(seconds) ? undefined : Math.max(1, seconds);
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
