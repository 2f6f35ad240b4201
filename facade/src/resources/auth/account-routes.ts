import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { callFor, signedInOf } from "../../pipeline/base/request-context.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent, Success } from "../../pipeline/validation/common-schemas.ts";
import { addMailPage, verificationPage } from "./mail-pages.ts";
import { toAccount } from "./mapping.ts";
import { Account, DeleteAccountBody, RegisterBody, UsernameBody, VerifyEmailBody } from "./schemas.ts";

const { method: rpc } = IdentityService;
const tags = ["Accounts"];

/** From the registration of an account to its deletion. */
export const accountRoutes: RoutePlugin = async (app, { clients: { identity, workspace }, limits }) => {
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
        description: "Sets the account's password, and ends the other links that were mailed to the address.",
        body: VerifyEmailBody,
        response: { 200: Success },
      },
    },
    async (request) => {
      await identity.verifyEmail(request.body, callFor(request));
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

  app.get(
    "/auth/account",
    {
      config: { rules: { rpc: rpc.getAccount, audit: "user.read" } },
      schema: {
        tags,
        summary: "Read your account, and what your credential may do",
        description: "For an API token, `workspace_id`, `role` and `permissions` are its limits.",
        response: { 200: Account },
      },
    },
    async (request) => toAccount(await identity.getAccount({}, callFor(request)), signedInOf(request)),
  );

  app.delete(
    "/auth/account",
    {
      config: { rules: { rpc: rpc.deleteAccount, audit: "user.delete", errors: ["INVALID_CREDENTIALS", "CONFLICT"] } },
      schema: {
        tags,
        summary: "Delete your account",
        description:
          "Ends your sessions, tokens and memberships, and deletes the workspaces of which you are the only member. Refused while you are the last owner of a workspace with other members, once the password is right.",
        body: DeleteAccountBody,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await limits.countPasswordUse(signedInOf(request).user.id, reply);
      const { password = "" } = request.body;
      await identity.confirmCaller({ password }, callFor(request));
      await workspace.checkAccountDeletion({}, callFor(request));
      await identity.deleteAccount({ password }, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
