/** Characters of the state in a cookie's name: enough to tell apart the attempts of one browser. */
const stateLength = 12;

const nameOf = (state: string) => `sandgate_sso_${state.slice(0, stateLength)}`;

/** A cookie that shows which browser started a sign-in. Each attempt has its own, so several may be under way at once. */
export function cookieOf(
  callbackUrl: URL,
  attempt: { state: string; browserSecret: string; expiresInSeconds: number },
): string {
  return `${nameOf(attempt.state)}=${attempt.browserSecret}; Max-Age=${attempt.expiresInSeconds}; ${scopeOf(callbackUrl)}`;
}

/** The same cookie's removal. */
export function removalOf(callbackUrl: URL, state: string): string {
  return `${nameOf(state)}=; Max-Age=0; ${scopeOf(callbackUrl)}`;
}

/** The value of the attempt's cookie in a Cookie header; empty without one. */
export function readCookie(header: string | undefined, state: string): string {
  const start = `${nameOf(state)}=`;
  const pair = header?.split(";").find((each) => each.trim().startsWith(start));
  return pair?.trim().slice(start.length) ?? "";
}

/** Lax: the provider's redirect brings it, and another site's form or script doesn't. */
function scopeOf({ pathname, protocol }: URL): string {
  return `Path=${pathname}; HttpOnly; SameSite=Lax${protocol === "https:" ? "; Secure" : ""}`;
}
