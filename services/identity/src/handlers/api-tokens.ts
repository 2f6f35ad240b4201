import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { invalid } from "@sandgate/kit/base/domain-error";
import { isUuid } from "@sandgate/kit/base/ids";
import { readPage } from "@sandgate/kit/base/page";
import { callOf, userOf } from "@sandgate/kit/rpc/context";
import { createRunIdempotent } from "@sandgate/kit/rpc/idempotency";
import type { IdempotencyStore } from "@sandgate/kit/storage/idempotency-record";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import {
  CreateApiTokenResponseSchema,
  IdentityService,
  RevokeApiTokenResponseSchema,
} from "@sandgate/proto/identity/v1/identity";
import { readPermissions } from "../domain/api-tokens.ts";
import type { OperatorSecondFactor } from "../domain/operator-rights.ts";
import { toApiToken, toVerifiedApiToken } from "../messages.ts";
import type { ApiTokens } from "../usecases/api-tokens.ts";

/** Answers what creates, lists, verifies and revokes API tokens. */
export function createApiTokenHandlers(o: {
  apiTokens: ApiTokens;
  store: { readonly idempotency: IdempotencyStore };
  keyring: Keyring;
  operatorSecondFactor: OperatorSecondFactor;
}) {
  const { apiTokens } = o;
  const runIdempotent = createRunIdempotent(o);
  return {
    createApiToken(request, context) {
      const call = callOf(context);
      return runIdempotent(call, IdentityService.method.createApiToken, request, async (recordFor) => {
        const { description, role } = request;
        const workspaceId = parseWorkspaceId(request.workspaceId);
        const expiresAt = request.expiresAt && timestampDate(request.expiresAt);
        const permissions = readPermissions(request.permissions);
        const drafted = apiTokens.draft(call, { description, role, permissions, workspaceId, expiresAt });
        const apiToken = toApiToken(drafted.apiToken);
        const response = create(CreateApiTokenResponseSchema, { apiToken, token: drafted.secret });
        await apiTokens.add(call, drafted, await recordFor(response));
        return response;
      });
    },

    async listApiTokens({ page }, context) {
      const { id } = userOf(callOf(context));
      const { rows, nextCursor } = await readPage(page, (limit, after) => apiTokens.list(id, limit, after));
      return { apiTokens: rows.map(toApiToken), nextCursor };
    },

    revokeApiToken(request, context) {
      const call = callOf(context);
      return runIdempotent(call, IdentityService.method.revokeApiToken, request, async (recordFor) => {
        const response = create(RevokeApiTokenResponseSchema);
        await apiTokens.revoke(call, request.tokenOrId, await recordFor(response));
        return response;
      });
    },

    async revokeApiTokens(_request, context) {
      await apiTokens.revokeAll(callOf(context));
      return {};
    },

    async listUsableApiTokens({ userIds, workspaceId, permission }) {
      return { tokenIds: await apiTokens.listUsable(userIds, { workspaceId, permission }) };
    },

    async verifyApiToken({ token: secret, tokenId: id, heedsPermissions }) {
      const verified = await apiTokens.verify(id === "" ? { secret } : { id }, { heedsPermissions });
      return toVerifiedApiToken(verified, o.operatorSecondFactor);
    },
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}

/** Empty: not bound to a workspace. The facade checks that the user is a member. */
function parseWorkspaceId(given: string): string | undefined {
  if (given === "") return undefined;
  const id = given.toLowerCase();
  if (!isUuid(id)) throw invalid("workspace_id", "must be a UUID");
  return id;
}
