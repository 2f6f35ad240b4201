import { compactVerify, createRemoteJWKSet, customFetch as joseFetch } from "jose";
import * as openid from "openid-client";
import { toEmail } from "./email.ts";
import { toProviderError } from "./errors.ts";
import { type Fetch, providerTimeoutMs } from "./outgoing.ts";
import type { SsoProvider } from "./provider.ts";
import { isOfManyTenants } from "./settings.ts";

/** How long the provider's description of itself is used before it is read again. */
const discoveryMs = 3_600_000;

type Claims = Readonly<Record<string, unknown>>;

interface Discovered {
  configuration: openid.Configuration;
  keys: ReturnType<typeof createRemoteJWKSet>;
}

/** A provider that speaks OpenID Connect. */
export function createOpenIdProvider(o: {
  issuer: URL;
  clientId: string;
  clientSecret: string;
  /** Whether the provider has verified the address in these claims. */
  isVerified(claims: Claims): boolean;
  fetch: Fetch;
  now: () => Date;
  timeoutMs?: number;
}): SsoProvider {
  const { issuer, fetch, now, timeoutMs = providerTimeoutMs } = o;
  const insecure = issuer.protocol === "http:";
  let discovery: { found: Promise<Discovered>; at: Date } | undefined;

  async function discover(): Promise<Discovered> {
    const configuration = await openid.discovery(issuer, o.clientId, o.clientSecret, undefined, {
      [openid.customFetch]: fetch,
      timeout: timeoutMs / 1000,
      execute: insecure ? [openid.allowInsecureRequests] : [],
    });
    const jwksUri = URL.parse(configuration.serverMetadata().jwks_uri ?? "");
    if (!jwksUri || (jwksUri.protocol !== "https:" && !insecure)) throw new Error("The provider has no safe jwks_uri.");
    // openid-client's own cache asks for an unknown key only a minute after the last time. Nobody but the provider can
    // send one here: ID tokens come from its token endpoint alone.
    const keys = createRemoteJWKSet(jwksUri, { cooldownDuration: 0, timeoutDuration: timeoutMs, [joseFetch]: fetch });
    return { configuration, keys };
  }

  function discovered(): Promise<Discovered> {
    const at = now();
    if (discovery && at.getTime() - discovery.at.getTime() < discoveryMs) return discovery.found;
    const own = { found: discover(), at };
    discovery = own;
    own.found.catch(() => {
      if (discovery === own) discovery = undefined;
    });
    return own.found;
  }

  /**
   * The claims about the user, those of the ID token first. A provider may give the address at its userinfo endpoint
   * alone.
   */
  async function readClaims(
    configuration: openid.Configuration,
    idToken: Claims,
    accessToken: string,
  ): Promise<Claims> {
    if (idToken.email !== undefined || !configuration.serverMetadata().userinfo_endpoint) return idToken;
    return { ...(await openid.fetchUserInfo(configuration, accessToken, String(idToken.sub))), ...idToken };
  }

  return {
    async authorizationUrl(callbackUrl, { state, nonce, codeVerifier }) {
      try {
        const { configuration } = await discovered();
        return openid.buildAuthorizationUrl(configuration, {
          redirect_uri: callbackUrl,
          scope: "openid email",
          state,
          nonce,
          code_challenge: await openid.calculatePKCECodeChallenge(codeVerifier),
          code_challenge_method: "S256",
        });
      } catch (error) {
        throw toProviderError(error);
      }
    },

    async identify(response, { state, nonce, codeVerifier }) {
      try {
        const { configuration, keys } = await discovered();
        const url = new URL(response);
        // The issuer would have to be compared with a template. A callback of its own for each provider protects the
        // same.
        if (isOfManyTenants(issuer)) url.searchParams.delete("iss");
        const tokens = await openid.authorizationCodeGrant(configuration, url, {
          expectedState: state,
          expectedNonce: nonce,
          pkceCodeVerifier: codeVerifier,
          idTokenExpected: true,
        });
        const idToken = tokens.claims();
        if (!idToken || tokens.id_token === undefined) throw new Error("The provider sent no ID token.");
        await compactVerify(tokens.id_token, keys);
        const claims = await readClaims(configuration, idToken, tokens.access_token);
        return {
          issuer: idToken.iss,
          subject: idToken.sub,
          email: toEmail(claims.email),
          emailVerified: o.isVerified(claims),
        };
      } catch (error) {
        throw toProviderError(error);
      }
    },
  };
}

/** Whether the address is verified, as OpenID Connect defines it (Core, 5.1). */
export const hasVerifiedEmail = (claims: Claims) => claims.email_verified === true;

/**
 * Microsoft says so only when the optional claim `xms_edov` is switched on for the client. Without it an administrator
 * of any tenant can write any address into an account.
 */
export function hasVerifiedEmailAtMicrosoft(claims: Claims): boolean {
  return hasVerifiedEmail(claims) || [true, 1, "1", "true"].some((yes) => claims.xms_edov === yes);
}
