import { readCookie } from "../../pipeline/base/cookies.ts";

/** Characters of the state in a cookie's name: enough to tell apart the attempts of one browser. */
const stateLength = 12;

/**
 * Over https a host of the same domain can't set it either, which would sign its victim in as somebody else (RFC
 * 6265bis, 4.1.3.2).
 */
const nameOf = ({ protocol }: URL, state: string) =>
  `${protocol === "https:" ? "__Host-" : ""}sandgate_sso_${state.slice(0, stateLength)}`;

/**
 * A cookie that shows which browser started a sign-in. Each attempt has its own, so several may be under way at once.
 */
export function cookieOf(
  callbackUrl: URL,
  attempt: { state: string; browserSecret: string; expiresInSeconds: number },
): string {
  return `${nameOf(callbackUrl, attempt.state)}=${attempt.browserSecret}; Max-Age=${attempt.expiresInSeconds}; ${scopeOf(callbackUrl)}`;
}

/** The same cookie's removal. */
export function removalOf(callbackUrl: URL, state: string): string {
  return `${nameOf(callbackUrl, state)}=; Max-Age=0; ${scopeOf(callbackUrl)}`;
}

/** The value of the attempt's cookie in a Cookie header; empty without one. */
export function readSsoCookie(callbackUrl: URL, header: string | undefined, state: string): string {
  return readCookie(header, nameOf(callbackUrl, state)) ?? "";
}

/** Lax: the provider's redirect brings it, and another site's form or script doesn't. */
function scopeOf({ pathname, protocol }: URL): string {
  const scope = protocol === "https:" ? "Path=/; Secure" : `Path=${pathname}`;
  return `${scope}; HttpOnly; SameSite=Lax`;
}
