import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { callFor } from "../../pipeline/base/request-context.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { collectPage } from "../../pipeline/messages/pages.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent } from "../../pipeline/validation/common-schemas.ts";
import { fromStateNames, sandboxIdOf, toSandbox } from "../sandboxes/mapping.ts";
import { SandboxList } from "../sandboxes/schemas.ts";
import { toUser, userIdOf } from "./mapping.ts";
import { AnySandboxParams, AnySandboxQuery, UpdateUserBody, User, UserList, UserParams, UserQuery } from "./schemas.ts";

const { method: rpc } = IdentityService;
const { method: sandboxRpc } = SandboxService;
const tags = ["Operators"];

/** What operators of the installation may do; others get FORBIDDEN, by the contract of the RPCs. */
export const adminRoutes: RoutePlugin = async (app, { clients: { identity, sandbox } }) => {
  app.get(
    "/admin/users",
    {
      config: { rules: { rpc: rpc.listUsers, audit: "user.list" } },
      schema: { tags, summary: "List users", querystring: UserQuery, response: { 200: UserList } },
    },
    async (request) => {
      const { username, ...page } = request.query;
      const { users, nextCursor } = await identity.listUsers({ page, username: username ?? "" }, callFor(request));
      return { users: users.map(toUser), next_cursor: nextCursor || null };
    },
  );

  app.put(
    "/admin/users/:user_id",
    {
      config: { rules: { rpc: rpc.setUserDisabled, audit: "user.disable", errors: ["NOT_FOUND", "CONFLICT"] } },
      schema: {
        tags,
        operationId: "updateUser",
        summary: "Enable or disable a user",
        description: "Disabling ends the user's sessions. API tokens are refused while it lasts; sandboxes run on.",
        params: UserParams,
        body: UpdateUserBody,
        response: { 200: User },
      },
    },
    async (request) => {
      const change = { userId: userIdOf(request.params.user_id), disabled: !request.body.enabled };
      return toUser(present((await identity.setUserDisabled(change, callFor(request))).user));
    },
  );

  app.delete(
    "/admin/users/:user_id",
    {
      config: { rules: { rpc: rpc.deleteUser, audit: "user.delete", errors: ["NOT_FOUND", "CONFLICT"] } },
      schema: {
        tags,
        summary: "Delete a user",
        description: "Deletes the workspaces whose last owner the user is, with everything in them.",
        params: UserParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await identity.deleteUser({ userId: userIdOf(request.params.user_id) }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.delete(
    "/admin/users/:user_id/sessions",
    {
      config: { rules: { rpc: rpc.endUserSessions, audit: "session.end_all", errors: ["NOT_FOUND"] } },
      schema: { tags, summary: "End all sessions of a user", params: UserParams, response: { 204: NoContent } },
    },
    async (request, reply) => {
      await identity.endUserSessions({ userId: userIdOf(request.params.user_id) }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.delete(
    "/admin/users/:user_id/api-tokens",
    {
      config: { rules: { rpc: rpc.revokeUserApiTokens, audit: "api_token.revoke_all", errors: ["NOT_FOUND"] } },
      schema: { tags, summary: "Revoke all API tokens of a user", params: UserParams, response: { 204: NoContent } },
    },
    async (request, reply) => {
      await identity.revokeUserApiTokens({ userId: userIdOf(request.params.user_id) }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.delete(
    "/admin/users/:user_id/second-factor",
    {
      config: { rules: { rpc: rpc.deleteUserSecondFactor, audit: "second_factor.remove", errors: ["NOT_FOUND"] } },
      schema: {
        tags,
        summary: "Remove the second factor of a user",
        description:
          "For a user who has lost both the device and the recovery codes. Ends the user's sessions, and sends a mail.",
        params: UserParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await identity.deleteUserSecondFactor({ userId: userIdOf(request.params.user_id) }, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.get(
    "/admin/sandboxes",
    {
      config: { rules: { rpc: sandboxRpc.listAllSandboxes, audit: "sandbox.list" } },
      schema: {
        tags,
        summary: "List sandboxes of all workspaces",
        querystring: AnySandboxQuery,
        response: { 200: SandboxList },
      },
    },
    async (request) => {
      const { limit, cursor, state, workspace_id, user_id } = request.query;
      const filter = { states: fromStateNames(state), workspaceId: workspace_id ?? "", userId: user_id ?? "" };
      const { rows, nextCursor } = await collectPage({ limit, cursor: cursor ?? "" }, async (page) => {
        const chunk = await sandbox.listAllSandboxes({ page, ...filter }, callFor(request));
        return { rows: chunk.sandboxes.map(toSandbox), nextCursor: chunk.nextCursor };
      });
      return { sandboxes: rows, next_cursor: nextCursor || null };
    },
  );

  app.delete(
    "/admin/sandboxes/:sandbox_id",
    {
      config: { rules: { rpc: sandboxRpc.stopAnySandbox, audit: "sandbox.stop", errors: ["SANDBOX_NOT_FOUND"] } },
      schema: {
        tags,
        summary: "Stop a sandbox of any workspace",
        description: "Succeeds in every state, also when repeated. Its `state_reason` is then `stopped_by_operator`.",
        params: AnySandboxParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await sandbox.stopAnySandbox({ sandboxId: sandboxIdOf(request.params.sandbox_id) }, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
