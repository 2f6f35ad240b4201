import { DomainError } from "@sandgate/kit/base/domain-error";
import { toPublicReason } from "@sandgate/kit/base/reasons";
import { IdentityService, type SessionTokens } from "@sandgate/proto/identity/v1/identity";
import type { FastifyReply, FastifyRequest } from "fastify";
import { type Static, Type } from "typebox";
import { requireOwnOrigin } from "../pipeline/admission/cors.ts";
import { callFor } from "../pipeline/base/request-context.ts";
import { present } from "../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../pipeline/route.ts";
import { NoContent } from "../pipeline/validation/common-schemas.ts";
import { clientOf } from "../resources/auth/client.ts";
import { LoginBody, RefreshBody } from "../resources/auth/schemas.ts";
import {
  type DashboardSite,
  prefixOf,
  readSessionCookie,
  sessionCookie,
  sessionCookieRemoval,
} from "./session-cookie.ts";

const { method: rpc } = IdentityService;
const path = "/dashboard/session";
/** What scripts of the page get to see of a session. */
const AccessToken = Type.Object({ access_token: Type.String(), expires_in: Type.Integer() });

const SignInOptions = Type.Object({
  providers: Type.Array(Type.String()),
  registration_open: Type.Boolean(),
  recaptcha: Type.Boolean(),
  redirect_uri: Type.String(),
});

/**
 * The dashboard's session: the sign-in, refresh and sign-out of the API, with the refresh token in a cookie that scripts
 * can't read and that nothing else accepts. Each request has to come from a page of this server.
 */
export const sessionRoutes: RoutePlugin = async (app, { clients: { identity }, publicUrl }) => {
  const siteOf = (request: FastifyRequest): DashboardSite => ({
    origin: requireOwnOrigin(request, publicUrl),
    prefix: prefixOf(publicUrl),
  });

  function show(
    reply: FastifyReply,
    site: DashboardSite,
    tokens: SessionTokens | undefined,
  ): Static<typeof AccessToken> {
    const { accessToken, expiresInSeconds, refreshToken, refreshExpiresInSeconds } = present(tokens);
    reply.header("set-cookie", sessionCookie(site, { refreshToken, maxAgeSeconds: refreshExpiresInSeconds }));
    return { access_token: accessToken, expires_in: expiresInSeconds };
  }

  app.get(
    path,
    {
      config: { rules: { rpc: rpc.getSignInOptions } },
      schema: { hide: true, response: { 200: SignInOptions } },
    },
    async (request) => {
      const { providers, registrationOpen, recaptcha } = await identity.getSignInOptions({}, callFor(request));
      return {
        providers,
        registration_open: registrationOpen,
        recaptcha,
        redirect_uri: `${publicUrl}/dashboard/sign-in`,
      };
    },
  );

  app.post(
    path,
    {
      config: {
        rules: {
          rpc: rpc.signIn,
          audit: "user.sign_in",
          limit: "sign-in",
          errors: ["INVALID_CREDENTIALS", "EMAIL_NOT_VERIFIED", "FORBIDDEN"],
        },
      },
      schema: { hide: true, body: LoginBody, response: { 200: AccessToken } },
    },
    async (request, reply) => {
      const site = siteOf(request);
      const { username, password, recaptchaToken = "", otp } = request.body;
      const { tokens } = await identity.signIn(
        { username, password, recaptchaToken, client: clientOf(request), ...(otp !== undefined && { otp }) },
        callFor(request),
      );
      return show(reply, site, tokens);
    },
  );

  // From single sign-on, which leaves a refresh token in the page's address.
  app.put(
    path,
    {
      config: { rules: { rpc: rpc.refreshSession, errors: ["INVALID_TOKEN"] } },
      schema: { hide: true, body: RefreshBody, response: { 200: AccessToken } },
    },
    async (request, reply) => {
      const site = siteOf(request);
      const call = { refreshToken: request.body.refresh_token, client: clientOf(request) };
      const { tokens } = await identity.refreshSession(call, callFor(request));
      return show(reply, site, tokens);
    },
  );

  app.post(
    `${path}/refresh`,
    {
      config: { rules: { rpc: rpc.refreshSession } },
      schema: { hide: true, response: { 200: AccessToken, 204: NoContent } },
    },
    async (request, reply) => {
      const site = siteOf(request);
      const refreshToken = readSessionCookie(site, request.headers.cookie);
      if (refreshToken === undefined) return reply.code(204).send(null);
      try {
        const { tokens } = await identity.refreshSession({ refreshToken, client: clientOf(request) }, callFor(request));
        return show(reply, site, tokens);
      } catch (error) {
        // A session that has ended is no failure of the page that asks whether there is one.
        if (!(error instanceof DomainError) || toPublicReason(error.reason) !== "INVALID_TOKEN") throw error;
        return reply.header("set-cookie", sessionCookieRemoval(site)).code(204).send(null);
      }
    },
  );

  app.delete(
    path,
    { config: { rules: { rpc: rpc.signOut } }, schema: { hide: true, response: { 204: NoContent } } },
    async (request, reply) => {
      const site = siteOf(request);
      const refreshToken = readSessionCookie(site, request.headers.cookie);
      if (refreshToken !== undefined) await identity.signOut({ refreshToken }, callFor(request));
      return reply.header("set-cookie", sessionCookieRemoval(site)).code(204).send(null);
    },
  );
};
