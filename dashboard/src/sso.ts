const key = "sandgate.sso";
/** Longer than a provider's page is open. */
const maxAgeMs = 60 * 60_000;

/** What single sign-on has left in the page's address. */
export interface SsoResult {
  refreshToken?: string | undefined;
  /** The code of what went wrong. */
  error?: string | undefined;
  hint?: string | undefined;
  requestId?: string | undefined;
  /** Where to go on, as the sign-in's page was told. */
  next?: string | undefined;
}

interface Begun {
  at: number;
  next?: string | undefined;
}

let failure: SsoResult | undefined;

/** Takes the result out of the address. Without a sign-in that this tab began there is none. */
export function takeSsoResult(): SsoResult {
  const fields = new URLSearchParams(location.hash.slice(1));
  if (!fields.has("refresh_token") && !fields.has("error")) return {};
  history.replaceState(null, "", location.pathname + location.search);
  const begun = JSON.parse(sessionStorage.getItem(key) ?? "null") as Begun | null;
  forgetSso();
  if (begun === null || Date.now() - begun.at > maxAgeMs) return {};
  const result = {
    next: begun.next,
    refreshToken: fields.get("refresh_token") ?? undefined,
    error: fields.get("error") ?? undefined,
    hint: fields.get("hint") ?? undefined,
    requestId: fields.get("request_id") ?? undefined,
  };
  failure = result.error === undefined ? undefined : result;
  return result;
}

/** Why the sign-in that brought the browser here failed. */
export const ssoFailure = (): SsoResult | undefined => failure;

/** Notes that this tab begins a sign-in, so that nobody else's link signs its reader in. */
export function beginSso(next: string | undefined): void {
  sessionStorage.setItem(key, JSON.stringify({ at: Date.now(), next } satisfies Begun));
}

/** Forgets the sign-in that this tab began: it has ended, or its user signed in another way. */
export function forgetSso(): void {
  sessionStorage.removeItem(key);
  failure = undefined;
}
