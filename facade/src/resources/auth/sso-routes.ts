import { isReason, type PublicReason, toPublicReason } from "@sandgate/kit/base/reasons";
import { IdentityService, type SessionTokens } from "@sandgate/proto/identity/v1/identity";
import type { FastifyReply } from "fastify";
import { callFor } from "../../pipeline/base/request-context.ts";
import { codeOf } from "../../pipeline/errors/envelope.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { clientOf } from "./client.ts";
import { Redirect, SsoCallbackQuery, SsoParams, SsoQuery } from "./schemas.ts";
import { cookieOf, readSsoCookie, removalOf } from "./sso-cookie.ts";

const { method: rpc } = IdentityService;
const tags = ["Accounts"];
/** The provider is asked for its description, a token, its keys and the user: identity gives each 5 s. */
const providerTimeoutMs = 25_000;

/**
 * Sign-in by a provider. The browser goes to the provider, comes back to the callback, and goes on to the application.
 */
export const ssoRoutes: RoutePlugin = async (app, { clients: { identity }, publicUrl }) => {
  app.get(
    "/auth/sso/:provider",
    {
      config: { rules: { rpc: rpc.startSso, limit: "sign-in", errors: ["NOT_FOUND"] } },
      schema: {
        tags,
        summary: "Sign in with Google, Microsoft or GitHub",
        description:
          "For a browser to open. Redirects to the provider, and from there to the application with the tokens in the fragment of the address (`access_token`, `refresh_token`, `token_type`, `expires_in`, `refresh_expires_in`), or with an error's code (`error`, `request_id`, and `hint` where one helps).",
        params: SsoParams,
        querystring: SsoQuery,
        response: { 302: Redirect },
      },
    },
    async (request, reply) => {
      const { provider } = request.params;
      const { redirect_uri: given } = request.query;
      const { redirectUri, outcome } = await identity.startSso(
        { provider, ...(given !== undefined && { redirectUri: given }) },
        callFor(request, { timeoutMs: providerTimeoutMs }),
      );
      if (outcome.case !== "attempt") {
        return redirect(reply, failureAddress(redirectUri, toPublic(outcome.value), request.id));
      }
      reply.header("set-cookie", cookieOf(callbackUrl(provider), outcome.value));
      return redirect(reply, outcome.value.authorizationUrl);
    },
  );

  app.get(
    "/auth/sso/:provider/callback",
    {
      config: { rules: { rpc: rpc.finishSso, audit: "user.sign_in", errors: ["NOT_FOUND", "INVALID_TOKEN"] } },
      schema: {
        tags,
        summary: "Come back from a provider",
        description: "Where a provider sends the browser. Works once, in the browser that started the sign-in.",
        params: SsoParams,
        querystring: SsoCallbackQuery,
        response: { 302: Redirect },
      },
    },
    async (request, reply) => {
      const { provider } = request.params;
      const { state = "", code, iss, error } = request.query;
      const { redirectUri, outcome, hint } = await identity.finishSso(
        {
          provider,
          state,
          browserSecret: readSsoCookie(callbackUrl(provider), request.headers.cookie, state),
          ...(code !== undefined && { code }),
          ...(iss !== undefined && { iss }),
          ...(error !== undefined && { error }),
          client: clientOf(request),
        },
        callFor(request, { timeoutMs: providerTimeoutMs }),
      );
      reply.header("set-cookie", removalOf(callbackUrl(provider), state));
      if (outcome.case !== "tokens") {
        const failure = toPublic(outcome.value);
        // For the audit log: a redirect is no error to Fastify.
        request.failure = failure;
        return redirect(reply, failureAddress(redirectUri, failure, request.id, hint));
      }
      return redirect(reply, tokensAddress(redirectUri, outcome.value));
    },
  );

  const callbackUrl = (provider: string) => new URL(`${publicUrl}/auth/sso/${provider}/callback`);
};

/** The addresses carry secrets: no answer of ours is cached or sent on as a referrer. */
function redirect(reply: FastifyReply, location: string): FastifyReply {
  return reply.code(302).header("location", location).send();
}

function tokensAddress(redirectUri: string, tokens: SessionTokens): string {
  return withFragment(redirectUri, {
    access_token: tokens.accessToken,
    refresh_token: tokens.refreshToken,
    token_type: "Bearer",
    expires_in: String(tokens.expiresInSeconds),
    refresh_expires_in: String(tokens.refreshExpiresInSeconds),
  });
}

function failureAddress(redirectUri: string, reason: PublicReason, requestId: string, hint = ""): string {
  return withFragment(redirectUri, { error: codeOf(reason), request_id: requestId, ...(hint && { hint }) });
}

/** A newer version of identity may know more reasons. */
function toPublic(reason: string | undefined): PublicReason {
  return reason !== undefined && isReason(reason) ? toPublicReason(reason) : "INTERNAL_ERROR";
}

/** A fragment stays in the browser; the configured addresses have none. */
function withFragment(address: string, fields: Record<string, string>): string {
  return `${address}#${new URLSearchParams(fields)}`;
}
