import type { Db } from "@sandgate/kit/storage/mongo";
import type { DeletionRecord } from "../domain/deletions.ts";
import type { MemberRecord } from "../domain/members.ts";
import type { WorkspaceRecord } from "../domain/workspaces.ts";

export interface WorkspaceDocument extends Omit<WorkspaceRecord, "id"> {
  _id: string;
  /** The quota owner. */
  chargedTo: string;
  /** The workspace's version when it began to count towards their quotas. */
  chargedSince: number;
}

export interface MemberDocument extends MemberRecord {
  workspaceId: string;
  /** The workspace's, so that an index gives a user's workspaces in their order. */
  workspaceCreatedAt: Date;
}

/**
 * One for every user who has been in a workspace. A transaction that makes a user a member or a quota owner writes
 * here, so it takes turns with the deletion of the account and with everything else that counts towards the user's
 * quota.
 */
interface AccountDocument {
  /** The user. */
  _id: string;
  /** How often the user joined or took over a workspace. */
  joins?: number;
  hadPersonalWorkspace?: true;
  /** When the account was deleted. */
  departedAt?: Date;
}

export interface DeletionDocument extends Omit<DeletionRecord, "workspaceId"> {
  /** The workspace. */
  _id: string;
  /** Unset once every service has purged. */
  open?: true;
  completedAt?: Date;
  announceAgainAt: Date;
  purges: { service: string; purgedAt?: Date }[];
}

export type Collections = ReturnType<typeof collectionsOf>;

export const collectionsOf = (db: Db) => ({
  workspaces: db.collection<WorkspaceDocument>("workspaces"),
  members: db.collection<MemberDocument>("members"),
  accounts: db.collection<AccountDocument>("accounts"),
  deletions: db.collection<DeletionDocument>("deletions"),
});
