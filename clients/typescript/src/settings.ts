import { readEnvironment, readStoredLogin } from "#machine";
import { BadSettings } from "./errors.ts";
import type { StoredLogin } from "./stored-login.ts";

/**
 * Gives the bearer token of each request; undefined sends none. After the server refused a token as no longer valid it
 * is asked once more, with that token as `refused`, and the request is sent again with the new one.
 */
export type TokenProvider = (o: { refused?: string }) => string | undefined | Promise<string | undefined>;

/** What every entry of the client takes. What is missing comes from the environment, else from `sandgate login`. */
export interface ClientOptions {
  /** The address of the API; SANDGATE_URL. A page's own origin or http://127.0.0.1:8080 by default. */
  url?: string | undefined;
  /** An API token, an access token or what gives them; SANDGATE_TOKEN. */
  token?: string | TokenProvider | undefined;
  /** A workspace by id or name; SANDGATE_WORKSPACE. The personal one by default. */
  workspace?: string | undefined;
  /** How long one try of a request may take to be answered, in milliseconds; 30 s by default. */
  requestTimeoutMs?: number | undefined;
  /** How often a request that may be repeated is tried again; 3 by default. */
  maxRetries?: number | undefined;
  /** Instead of the platform's own. */
  fetch?: typeof fetch | undefined;
}

export interface Settings {
  readonly url: string;
  readonly workspace: string | undefined;
  readonly token: TokenProvider;
}

const localUrl = "http://127.0.0.1:8080";

/**
 * Completes options from the environment and from what `sandgate login` stored. A stored token goes to its own address
 * alone. Throws BadSettings when what was stored can't be read, unless a token is given.
 */
export async function resolveSettings(options: ClientOptions): Promise<Settings> {
  const ownToken = options.token ?? readEnvironment("SANDGATE_TOKEN");
  const stored = await readLogin(ownToken === undefined);
  const given = options.url ?? readEnvironment("SANDGATE_URL");
  const url = baseUrlOf(given ?? stored.url ?? pageOrigin() ?? localUrl);
  const isStored = stored.url !== undefined && baseUrlOf(stored.url) === url;
  const token = ownToken ?? (isStored ? stored.token : undefined);
  return {
    url,
    workspace: options.workspace ?? readEnvironment("SANDGATE_WORKSPACE") ?? (isStored ? stored.workspace : undefined),
    token: typeof token === "function" ? token : () => token,
  };
}

async function readLogin(isNeeded: boolean): Promise<StoredLogin> {
  try {
    return await readStoredLogin();
  } catch (error) {
    // A program with a token of its own may not even see its user's files.
    if (!isNeeded) return {};
    throw error;
  }
}

function pageOrigin(): string | undefined {
  const { location } = globalThis as { location?: { origin?: string } };
  return location?.origin?.startsWith("http") ? location.origin : undefined;
}

function baseUrlOf(url: string): string {
  if (!/^https?:\/\//.test(url) || !URL.canParse(url)) {
    throw new BadSettings(
      `${JSON.stringify(url)} is not an address of the API.`,
      "Such as https://sandgate.example.com",
    );
  }
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname.endsWith("/") ? pathname.slice(0, -1) : pathname}`;
}
