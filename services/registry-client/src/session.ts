import { parseChallenge } from "./challenge.ts";
import { type Connections, discard, type GuardedRequest, type GuardedResponse, readBody } from "./guarded-request.ts";
import { problemOf, RegistryError } from "./registry-error.ts";

export interface Credential {
  readonly username: string;
  readonly password: string;
}

interface SendOptions {
  readonly method?: "GET" | "HEAD";
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** For the answer of a token service; most have some kilobytes. */
const maxTokenBytes = 64 * 1024;

/** Sends a request with the session's authorization. */
export type Send = (url: URL, options: SendOptions) => Promise<GuardedResponse>;

/**
 * Opens a session: the first request is repeated with the authorization that the registry asks for, later ones have it.
 */
export function openSession(
  request: GuardedRequest,
  credential: Credential | undefined,
  connections?: Connections,
): Send {
  let authorization: string | undefined;
  return async (url, options) => {
    const response = await request(url, { ...options, authorization, connections });
    // A challenge from where the registry redirects to is not the registry's.
    if (response.status !== 401 || response.url.origin !== url.origin) return response;
    const challenge = parseChallenge(response.headers["www-authenticate"]);
    if (challenge?.scheme === "bearer") {
      discard(response);
      authorization = `Bearer ${await fetchToken(request, challenge, url, credential, options.signal)}`;
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
  request: GuardedRequest,
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
  const body = await readBody(response, maxTokenBytes);
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
