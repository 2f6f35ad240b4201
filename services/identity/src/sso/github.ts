import { trimEndSlashes } from "@sandgate/kit/base/web-addresses";
import * as openid from "openid-client";
import { toEmail } from "./email.ts";
import { toProviderError } from "./errors.ts";
import { type Fetch, providerTimeoutMs } from "./outgoing.ts";
import type { ProviderAccount, SsoProvider } from "./provider.ts";

/** GitHub, which speaks OAuth 2. Its API says who has signed in. */
export function createGithubProvider(o: {
  issuer: URL;
  apiUrl: URL;
  clientId: string;
  clientSecret: string;
  fetch: Fetch;
  timeoutMs?: number;
}): SsoProvider {
  const issuer = trimEndSlashes(o.issuer.href);
  const configuration = new openid.Configuration(
    {
      issuer,
      authorization_endpoint: `${issuer}/login/oauth/authorize`,
      token_endpoint: `${issuer}/login/oauth/access_token`,
    },
    o.clientId,
    o.clientSecret,
  );
  configuration.timeout = (o.timeoutMs ?? providerTimeoutMs) / 1000;
  configuration[openid.customFetch] = async (url, options) => withErrorStatus(await o.fetch(url, options));
  if (o.issuer.protocol === "http:") openid.allowInsecureRequests(configuration);

  async function ask(path: string, accessToken: string): Promise<unknown> {
    const url = new URL(`${trimEndSlashes(o.apiUrl.href)}${path}`);
    const headers = new Headers({ accept: "application/vnd.github+json", "x-github-api-version": "2022-11-28" });
    const response = await openid.fetchProtectedResource(configuration, accessToken, url, "GET", undefined, headers);
    if (response.status !== 200) throw new Error(`GitHub's API answered ${path} with status ${response.status}.`);
    return response.json();
  }

  return {
    async authorizationUrl(callbackUrl, { state, codeVerifier }) {
      return openid.buildAuthorizationUrl(configuration, {
        redirect_uri: callbackUrl,
        scope: "user:email",
        state,
        code_challenge: await openid.calculatePKCECodeChallenge(codeVerifier),
        code_challenge_method: "S256",
      });
    },

    async identify(response, { state, codeVerifier }) {
      try {
        const url = new URL(response);
        // GitHub doesn't promise an issuer. A callback of its own for each provider protects the same.
        url.searchParams.delete("iss");
        const checks = { expectedState: state, pkceCodeVerifier: codeVerifier };
        const { access_token: accessToken } = await openid.authorizationCodeGrant(configuration, url, checks);
        const [user, emails] = [await ask("/user", accessToken), await ask("/user/emails", accessToken)];
        return { issuer, subject: readId(user), ...readPrimaryEmail(emails) };
      } catch (error) {
        throw toProviderError(error);
      }
    },
  };
}

/** GitHub refuses a request for a token with status 200. */
async function withErrorStatus(response: Response): Promise<Response> {
  if (response.status !== 200 || !response.headers.get("content-type")?.includes("application/json")) return response;
  const text = await response.text();
  const status = isObject(JSON.parse(text)) && "error" in JSON.parse(text) ? 400 : 200;
  return new Response(text, { status, headers: response.headers });
}

/** An account's number; its name may change hands. */
function readId(user: unknown): string {
  if (isObject(user) && typeof user.id === "number" && Number.isSafeInteger(user.id)) return String(user.id);
  throw new Error("GitHub's API named no user.");
}

function readPrimaryEmail(emails: unknown): Pick<ProviderAccount, "email" | "emailVerified"> {
  if (!Array.isArray(emails)) throw new Error("GitHub's API listed no addresses.");
  const primary = emails.find((each: unknown) => isObject(each) && each.primary === true);
  return { email: toEmail(primary?.email), emailVerified: primary?.verified === true };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
