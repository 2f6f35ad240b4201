import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { toPermission, toRole } from "@sandgate/kit/rpc/access";
import { Role } from "@sandgate/proto/common/v1/access";
import { IdentityService, RevokeApiTokenRequestSchema } from "@sandgate/proto/identity/v1/identity";
import { callFor, signedInOf } from "../../pipeline/base/request-context.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { maxLengthOf } from "../../pipeline/messages/field-rules.ts";
import { parseMoment, toTimestamp } from "../../pipeline/messages/times.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { CreatingHeaders, NoContent, PageQuery } from "../../pipeline/validation/common-schemas.ts";
import { toApiToken } from "./mapping.ts";
import { ApiTokenList, ApiTokenParams, CreateApiTokenBody, CreatedApiToken } from "./schemas.ts";

const { method: rpc } = IdentityService;
const tags = ["API tokens"];
/** No longer token was ever issued. */
const maxTokenLength = maxLengthOf(RevokeApiTokenRequestSchema, "token_or_id");

export const apiTokenRoutes: RoutePlugin = async (app, { clients: { identity }, scope }) => {
  app.post(
    "/api-tokens",
    {
      config: {
        rules: { rpc: rpc.createApiToken, audit: "api_token.create", errors: ["WORKSPACE_FORBIDDEN", "CONFLICT"] },
      },
      schema: {
        tags,
        summary: "Create an API token",
        description:
          "Only this response shows the token. A mail tells you of it. Where the operator has set a maximum lifetime, a token without `expires_at` gets that one.",
        headers: CreatingHeaders,
        body: CreateApiTokenBody,
        response: { 201: CreatedApiToken },
      },
    },
    async (request, reply) => {
      const { description, expires_at, workspace_id, role, permissions } = request.body;
      const workspaceId = workspace_id?.toLowerCase();
      if (workspaceId !== undefined) {
        await scope.enter(signedInOf(request), workspaceId, {
          inPath: false,
          least: Role.MEMBER,
          requestId: request.id,
        });
      }
      const expiresAt = expires_at === undefined ? undefined : parseMoment(expires_at);
      const created = await identity.createApiToken(
        {
          description,
          ...(expiresAt !== undefined && { expiresAt: toTimestamp(expiresAt) }),
          ...(workspaceId !== undefined && { workspaceId }),
          ...(role !== undefined && { role: toRole(role) }),
          ...(permissions !== undefined && { permissions: permissions.map(toPermission) }),
        },
        callFor(request),
      );
      const { token_hint, last_used_at, ...record } = toApiToken(present(created.apiToken));
      if (permissions !== undefined && record.permissions === null) {
        // A version without permissions made it, and it may do everything. Nobody is told its secret, so whether it can be
        // revoked matters little.
        const revoking = callFor(request, { idempotencyKey: newId() });
        await identity.revokeApiToken({ tokenOrId: record.id }, revoking).catch(() => undefined);
        throw new DomainError(
          "UPSTREAM_ERROR",
          "API tokens with permissions can't be made while the platform is being updated.",
        );
      }
      return reply.code(201).send({ ...record, token: created.token });
    },
  );

  app.get(
    "/api-tokens",
    {
      config: { rules: { rpc: rpc.listApiTokens, audit: "api_token.list", auditReads: true } },
      schema: { tags, summary: "List your API tokens", querystring: PageQuery, response: { 200: ApiTokenList } },
    },
    async (request) => {
      const { apiTokens, nextCursor } = await identity.listApiTokens({ page: request.query }, callFor(request));
      return { api_tokens: apiTokens.map(toApiToken), next_cursor: nextCursor || null };
    },
  );

  app.delete(
    "/api-tokens",
    {
      config: { rules: { rpc: rpc.revokeApiTokens, audit: "api_token.revoke_all" } },
      schema: { tags, summary: "Revoke all your API tokens", response: { 204: NoContent } },
    },
    async (request, reply) => {
      await identity.revokeApiTokens({}, callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.delete(
    "/api-tokens/:token",
    {
      config: { rules: { rpc: rpc.revokeApiToken, audit: "api_token.revoke", errors: ["API_KEY_NOT_FOUND"] } },
      schema: {
        tags,
        summary: "Revoke an API token",
        params: ApiTokenParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      const { token } = request.params;
      if (token.length > maxTokenLength) throw new DomainError("API_KEY_NOT_FOUND", "You have no such API token.");
      // Each request has a key of its own, so that a repeated call succeeds although the token is gone.
      await identity.revokeApiToken({ tokenOrId: token }, callFor(request, { idempotencyKey: newId() }));
      return reply.code(204).send(null);
    },
  );
};
