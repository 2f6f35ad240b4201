import { newId } from "@sandgate/kit/base/ids";
import type { Role } from "@sandgate/proto/common/v1/access";

export interface WorkspaceRecord {
  readonly id: string;
  readonly name: string;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Grows with every change of the workspace or of its members. */
  readonly version: number;
}

/** A workspace as one user sees it. */
export interface WorkspaceView extends WorkspaceRecord {
  /** Unspecified: not a member. */
  readonly role: Role;
}

/** Where a workspace stands in a user's list: those that the user owns first, then by role, and the newest first. */
export type WorkspacePosition = Pick<WorkspaceView, "role" | "createdAt" | "id">;

/** The version of a workspace that a change was decided on. */
export interface WorkspaceVersion {
  readonly workspaceId: string;
  readonly version: number;
}

export function versionOf({ id, version }: WorkspaceRecord): WorkspaceVersion {
  return { workspaceId: id, version };
}

export function newWorkspace(name: string): WorkspaceRecord {
  const now = new Date();
  return { id: newId(), name, createdAt: now, updatedAt: now, version: 1 };
}
