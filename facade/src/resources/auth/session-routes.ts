import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { callFor } from "../../pipeline/base/request-context.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent, PageQuery } from "../../pipeline/validation/common-schemas.ts";
import { clientOf } from "./client.ts";
import { sessionIdOf, toSession, toSessionTokens } from "./mapping.ts";
import { LoginBody, RefreshBody, SessionList, SessionParams, SessionTokens } from "./schemas.ts";

const { method: rpc } = IdentityService;
const tags = ["Accounts"];

/** Sessions, from the sign-in with a password on. */
export const sessionRoutes: RoutePlugin = async (app, { clients: { identity } }) => {
  app.post(
    "/auth/login",
    {
      config: {
        rules: {
          rpc: rpc.signIn,
          audit: "user.sign_in",
          limit: "sign-in",
          errors: ["INVALID_CREDENTIALS", "EMAIL_NOT_VERIFIED", "FORBIDDEN"],
        },
      },
      schema: {
        tags,
        summary: "Sign in",
        description:
          "Starts a session. In an account with a second factor, the right password without its code is answered with `invalid_credentials` and `details` on `body.otp`.",
        body: LoginBody,
        response: { 200: SessionTokens },
      },
    },
    async (request, reply) => {
      const { username, password, recaptchaToken, otp } = request.body;
      const { tokens } = await identity.signIn(
        {
          username,
          password,
          recaptchaToken: recaptchaToken ?? "",
          client: clientOf(request),
          ...(otp !== undefined && { otp }),
        },
        callFor(request),
      );
      return reply.send(toSessionTokens(tokens));
    },
  );

  app.post(
    "/auth/refresh",
    {
      config: { rules: { rpc: rpc.refreshSession, errors: ["INVALID_TOKEN"] } },
      schema: {
        tags,
        summary: "Refresh a session",
        description: "A refresh token can be used once; the response contains the next one.",
        body: RefreshBody,
        response: { 200: SessionTokens },
      },
    },
    async (request, reply) => {
      const { tokens } = await identity.refreshSession(
        { refreshToken: request.body.refresh_token, client: clientOf(request) },
        callFor(request),
      );
      return reply.send(toSessionTokens(tokens));
    },
  );

  app.post(
    "/auth/logout",
    {
      config: { rules: { rpc: rpc.signOut } },
      schema: {
        tags,
        summary: "End a session",
        description: "The response is the same for an unknown token.",
        body: RefreshBody,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await identity.signOut({ refreshToken: request.body.refresh_token }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.get(
    "/auth/sessions",
    {
      config: { rules: { rpc: rpc.listSessions, audit: "session.list" } },
      schema: {
        tags,
        summary: "List your sessions",
        description: "Those that have not ended, newest first.",
        querystring: PageQuery,
        response: { 200: SessionList },
      },
    },
    async (request) => {
      const { sessions, nextCursor } = await identity.listSessions({ page: request.query }, callFor(request));
      return { sessions: sessions.map(toSession), next_cursor: nextCursor || null };
    },
  );

  app.delete(
    "/auth/sessions/:session_id",
    {
      config: { rules: { rpc: rpc.endSession, audit: "session.end", errors: ["NOT_FOUND"] } },
      schema: {
        tags,
        summary: "End one of your sessions",
        description: "Its access tokens are refused within a second.",
        params: SessionParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await identity.endSession({ sessionId: sessionIdOf(request.params.session_id) }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.delete(
    "/auth/sessions",
    {
      config: { rules: { rpc: rpc.endOtherSessions, audit: "session.end_all" } },
      schema: { tags, summary: "End all of your other sessions", response: { 204: NoContent } },
    },
    async (request, reply) => {
      await identity.endOtherSessions({}, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
