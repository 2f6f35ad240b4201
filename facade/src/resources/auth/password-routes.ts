import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { callFor, signedInOf } from "../../pipeline/base/request-context.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { Success } from "../../pipeline/validation/common-schemas.ts";
import { addMailPage, passwordResetPage } from "./mail-pages.ts";
import { toIdentity } from "./mapping.ts";
import { ChangePasswordBody, PasswordReset, ResetPasswordBody, UsernameBody } from "./schemas.ts";

const { method: rpc } = IdentityService;
const tags = ["Accounts"];

export const passwordRoutes: RoutePlugin = async (app, { clients: { identity }, limits }) => {
  app.post(
    "/auth/password",
    {
      config: { rules: { rpc: rpc.changePassword, audit: "user.change_password", errors: ["INVALID_CREDENTIALS"] } },
      schema: {
        tags,
        summary: "Change your password",
        description:
          "Ends all other sessions, and sends a mail about it. `revoke_api_tokens` revokes your API tokens too.",
        body: ChangePasswordBody,
        response: { 200: Success },
      },
    },
    async (request, reply) => {
      const { current_password: currentPassword, password, revoke_api_tokens: revokeApiTokens = false } = request.body;
      await limits.countPasswordUse(signedInOf(request).user.id, reply);
      await identity.changePassword({ currentPassword, password, revokeApiTokens }, callFor(request));
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
        description:
          "Ends all sessions, revokes all API tokens, and sends a mail about it. The second factor and the links to providers stay.",
        body: ResetPasswordBody,
        response: { 200: PasswordReset },
      },
    },
    async (request) => {
      const { identities } = await identity.resetPassword(request.body, callFor(request));
      return { success: true, identities: identities.map(toIdentity) };
    },
  );

  addMailPage(app, "/auth/password/reset", passwordResetPage);
};
