import type { ApiToken } from "@sandgate/proto/identity/v1/identity";
import type { Static } from "typebox";
import { present } from "../../pipeline/contract.ts";
import { toIsoMillis, toIsoMillisOrNull } from "../../pipeline/times.ts";
import type * as schemas from "./schemas.ts";

export function toApiToken(token: ApiToken): Static<typeof schemas.ApiToken> {
  return {
    id: token.id,
    description: token.description,
    token_hint: token.tokenHint,
    workspace_id: token.workspaceId || null,
    expires_at: toIsoMillisOrNull(token.expiresAt),
    created_at: toIsoMillis(present(token.createdAt)),
    last_used_at: toIsoMillisOrNull(token.lastUsedAt),
  };
}
