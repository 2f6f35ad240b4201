import type { Cursor } from "@sandgate/kit/base/page";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Role } from "@sandgate/proto/common/v1/access";
import type { AccountDeleted, OwnsTooMany } from "../domain/accounts.ts";
import type { MemberRecord, MemberView, TooManyMembers } from "../domain/members.ts";
import type { Quotas } from "../domain/quotas.ts";
import type { ChangeOutcome, WorkspaceChange } from "./workspaces.ts";

/** A change of a member with which its caller may take the workspace over. */
export interface MemberChange extends WorkspaceChange {
  /** Who becomes the quota owner, unless they own too many workspaces; undefined: nobody. */
  readonly takeOver: { readonly userId: string; readonly quotas: Quotas } | undefined;
}

export interface Members {
  /** The workspace as `actorId` sees it, with the membership of `userId`; undefined when there is no such workspace. */
  find(workspaceId: string, userId: string, actorId: string): Promise<MemberView | undefined>;
  /** Newest first, by joining. */
  list(workspaceId: string, after: Cursor | undefined, limit: number): Promise<MemberRecord[]>;

  add(
    change: WorkspaceChange,
    member: MemberRecord,
    quotas: Quotas,
    record: IdempotencyRecord | undefined,
  ): Promise<ChangeOutcome | AccountDeleted | TooManyMembers>;
  changeRole(change: MemberChange, userId: string, role: Role): Promise<ChangeOutcome | OwnsTooMany>;
  remove(change: MemberChange, userId: string): Promise<ChangeOutcome | OwnsTooMany>;
}
