import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import type { App } from "../../pipeline/base/app.ts";
import { callFor, signedInOf } from "../../pipeline/base/request-context.ts";
import type { RouteContext } from "../../pipeline/route.ts";
import { NoContent, PageQuery, Success } from "../../pipeline/validation/schema-parts.ts";
import { clientOf } from "./client.ts";
import { type MailPage, mailPagePolicy, passwordResetPage, verificationPage } from "./mail-pages.ts";
import { toSession, toSessionTokens } from "./mapping.ts";
import {
  ChangePasswordBody,
  DeleteAccountBody,
  LoginBody,
  RefreshBody,
  RegisterBody,
  ResetPasswordBody,
  SessionList,
  SessionParams,
  SessionTokens,
  UsernameBody,
  VerifyEmailBody,
} from "./schemas.ts";

const { method: rpc } = IdentityService;
const tags = ["Accounts"];

export function addAuthRoutes(app: App, { clients: { identity, workspace }, limits }: RouteContext): void {
  app.post(
    "/auth/register",
    {
      config: { rules: { rpc: rpc.register, limit: "mail", errors: ["FORBIDDEN"] } },
      schema: {
        tags,
        summary: "Create an account",
        description: "Sends a verification mail. The response is the same when the name is taken.",
        body: RegisterBody,
        response: { 201: Success },
      },
    },
    async (request, reply) => {
      const { username, password, recaptchaToken } = request.body;
      await identity.register({ username, password, recaptchaToken: recaptchaToken ?? "" }, callFor(request));
      return reply.code(201).send({ success: true });
    },
  );

  app.post(
    "/auth/verify-email",
    {
      config: { rules: { rpc: rpc.verifyEmail, errors: ["INVALID_TOKEN"] } },
      schema: {
        tags,
        summary: "Verify an e-mail address with the token from the mail",
        body: VerifyEmailBody,
        response: { 200: Success },
      },
    },
    async (request) => {
      const { token, password } = request.body;
      await identity.verifyEmail({ token, ...(password !== undefined && { password }) }, callFor(request));
      return { success: true };
    },
  );

  addMailPage(app, "/auth/verify-email", verificationPage);

  app.post(
    "/auth/resend-verification",
    {
      config: { rules: { rpc: rpc.resendVerification, limit: "mail" } },
      schema: {
        tags,
        summary: "Send the verification mail again",
        description: "The response is the same for every name.",
        body: UsernameBody,
        response: { 202: Success },
      },
    },
    async (request, reply) => {
      await identity.resendVerification({ username: request.body.username }, callFor(request));
      return reply.code(202).send({ success: true });
    },
  );

  app.post(
    "/auth/password",
    {
      config: { rules: { rpc: rpc.changePassword, errors: ["INVALID_CREDENTIALS"] } },
      schema: {
        tags,
        summary: "Change your password",
        description: "Ends all other sessions, and sends a mail that says so.",
        body: ChangePasswordBody,
        response: { 200: Success },
      },
    },
    async (request, reply) => {
      const { current_password, password } = request.body;
      await limits.countPasswordUse(signedInOf(request).user.id, reply);
      await identity.changePassword({ currentPassword: current_password, password }, callFor(request));
      return { success: true };
    },
  );

  app.post(
    "/auth/password/forgot",
    {
      config: { rules: { rpc: rpc.requestPasswordReset, limit: "mail" } },
      schema: {
        tags,
        summary: "Send a mail with a link that sets a new password",
        description: "The response is the same for every name.",
        body: UsernameBody,
        response: { 202: Success },
      },
    },
    async (request, reply) => {
      await identity.requestPasswordReset({ username: request.body.username }, callFor(request));
      return reply.code(202).send({ success: true });
    },
  );

  app.post(
    "/auth/password/reset",
    {
      config: { rules: { rpc: rpc.resetPassword, errors: ["INVALID_TOKEN"] } },
      schema: {
        tags,
        summary: "Set a new password with the token from the mail",
        description: "Ends all sessions, and sends a mail that says so.",
        body: ResetPasswordBody,
        response: { 200: Success },
      },
    },
    async (request) => {
      await identity.resetPassword(request.body, callFor(request));
      return { success: true };
    },
  );

  addMailPage(app, "/auth/password/reset", passwordResetPage);

  app.post(
    "/auth/login",
    {
      config: {
        rules: {
          rpc: rpc.signIn,
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

  app.delete(
    "/auth/account",
    {
      config: { rules: { rpc: rpc.deleteAccount, errors: ["INVALID_CREDENTIALS", "CONFLICT"] } },
      schema: {
        tags,
        summary: "Delete your account",
        description:
          "Ends your sessions, tokens and memberships, and deletes the workspaces of which you are the only member. Refused while you are the last owner of a workspace with other members.",
        body: DeleteAccountBody,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await limits.countPasswordUse(signedInOf(request).user.id, reply);
      await workspace.checkAccountDeletion({}, callFor(request));
      await identity.deleteAccount({ password: request.body.password ?? "" }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.get(
    "/auth/sessions",
    {
      config: { rules: { rpc: rpc.listSessions } },
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
      config: { rules: { rpc: rpc.endSession, errors: ["NOT_FOUND"] } },
      schema: {
        tags,
        summary: "End one of your sessions",
        description: "Its access tokens are refused within a second.",
        params: SessionParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await identity.endSession({ sessionId: request.params.session_id }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.delete(
    "/auth/sessions",
    {
      config: { rules: { rpc: rpc.endOtherSessions } },
      schema: { tags, summary: "End all of your other sessions", response: { 204: NoContent } },
    },
    async (request, reply) => {
      await identity.endOtherSessions({}, callFor(request));
      return reply.code(204).send(null);
    },
  );
}

/** Serves the page that a mail's link opens, at the path to which its form sends the token. */
function addMailPage(app: App, path: string, { title, html }: MailPage): void {
  app.get(
    path,
    {
      config: { rules: { rpc: "none" } },
      schema: {
        tags,
        summary: `Open the page "${title}"`,
        description: "The page that the link in the mail opens. Its button sends the token with POST.",
        response: { 200: { description: "HTML.", content: { "text/html": { schema: { type: "string" } } } } },
      },
    },
    async (_request, reply) =>
      reply
        .type("text/html; charset=utf-8")
        .header("content-security-policy", mailPagePolicy)
        .serializer((text: string) => text)
        .send(html),
  );
}
