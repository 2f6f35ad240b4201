import type { SessionTokens } from "./records.ts";
import type { TokenProvider } from "./settings.ts";

/** Before its end an access token is replaced. */
const marginMs = 30_000;

/**
 * Gives the access token of a session, and goes on with the session when that token is about to expire or was refused.
 * Requests that come meanwhile wait for the one refresh.
 */
export function createSession(o: {
  /** From a sign-in; without it the first request refreshes. */
  tokens?: SessionTokens | undefined;
  /** Gets the tokens that follow: with a browser's cookie, or by the refresh token. */
  refresh(refreshToken: string | undefined): Promise<SessionTokens>;
  /** Told of each new pair of tokens. */
  onRefresh?: ((tokens: SessionTokens) => void | Promise<void>) | undefined;
}): TokenProvider {
  let current = o.tokens;
  let expiresAt = endOf(current);
  let refreshing: Promise<string> | undefined;

  async function refresh(): Promise<string> {
    const tokens = await o.refresh(current?.refreshToken);
    current = tokens;
    expiresAt = endOf(tokens);
    await o.onRefresh?.(tokens);
    return tokens.accessToken;
  }

  return ({ refused }) => {
    const isGood = current !== undefined && current.accessToken !== refused && Date.now() < expiresAt - marginMs;
    if (isGood && current) return current.accessToken;
    refreshing ??= refresh().finally(() => {
      refreshing = undefined;
    });
    return refreshing;
  };
}

function endOf(tokens: SessionTokens | undefined): number {
  return tokens === undefined ? 0 : Date.now() + tokens.expiresIn * 1000;
}
