import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Sandbox } from "./sandbox.ts";

/** What sandboxes may take at once. 0 means no limit. */
export interface Quota {
  maxSandboxes: number;
  maxMemoryMb: number;
}

export interface Quotas {
  /** Of each workspace. */
  workspace: Quota;
  /** Of all workspaces that have the same quota owner. */
  user: Quota;
  /** Of all workspaces together: what the host can carry. */
  installation: Quota;
}

/** The user whose quota a workspace and all its sandboxes count towards. */
export interface QuotaOwner {
  userId: string;
  /** The workspace's version when the user became its quota owner. Of two quota owners the later one holds. */
  since: number;
}

/** The sandboxes that have not ended, and their memory. */
export interface Usage {
  sandboxes: number;
  memoryMb: number;
}

export function isLimited({ maxSandboxes, maxMemoryMb }: Quota): boolean {
  return maxSandboxes > 0 || maxMemoryMb > 0;
}

/** What a transaction that creates a sandbox has read. Each usage includes the new sandbox. */
export interface CreateState {
  isWorkspaceDeleted: boolean;
  isNameTaken: boolean;
  workspace: Usage;
  /** The usage of the workspace's quota owner. Undefined without an owner, and where it isn't needed. */
  user: Usage | undefined;
  /** Undefined where it isn't needed. */
  installation: Usage | undefined;
}

/**
 * Whether the usage of the quota owner or of the installation has to be read, once that of the workspace is known.
 * Reading it makes the creates of many workspaces take turns on MongoDB, so a workspace that is full must not cause it.
 */
export function isUsageNeeded(of: "user" | "installation", quotas: Quotas, workspace: Usage): boolean {
  return isLimited(quotas[of]) && exceededLimit(quotas.workspace, workspace) === undefined;
}

/**
 * Decides whether a sandbox may be created. Throws WORKSPACE_FORBIDDEN (the workspace was deleted), PROVISIONING_FAILED
 * (a quota) or SANDBOX_NAME_CONFLICT.
 */
export function checkCreate({ name }: Sandbox, quotas: Quotas, state: CreateState): void {
  if (state.isWorkspaceDeleted) throw new DomainError("WORKSPACE_FORBIDDEN", "The workspace was deleted.");
  checkWorkspaceQuota(quotas.workspace, state.workspace);
  if (state.user) checkUserQuota(quotas.user, state.user);
  if (state.installation) checkInstallationQuota(quotas.installation, state.installation);
  if (state.isNameTaken) throw new DomainError("SANDBOX_NAME_CONFLICT", `A live sandbox has the name ${name}.`);
}

function exceededLimit({ maxSandboxes, maxMemoryMb }: Quota, usage: Usage): "sandboxes" | "memory" | undefined {
  if (maxSandboxes > 0 && usage.sandboxes > maxSandboxes) return "sandboxes";
  return maxMemoryMb > 0 && usage.memoryMb > maxMemoryMb ? "memory" : undefined;
}

function checkWorkspaceQuota(quota: Quota, usage: Usage): void {
  const exceeded = exceededLimit(quota, usage);
  if (!exceeded) return;
  const limit =
    exceeded === "sandboxes"
      ? `A workspace may hold ${quota.maxSandboxes} sandboxes at once.`
      : `A workspace's sandboxes may hold ${quota.maxMemoryMb} MB together; with this one they would hold ${usage.memoryMb} MB.`;
  throw new DomainError("PROVISIONING_FAILED", `The workspace has used up its quota of ${exceeded}.`, {
    hint: `${limit} Stop one, or ask the operator for more.`,
  });
}

function checkUserQuota(quota: Quota, usage: Usage): void {
  const exceeded = exceededLimit(quota, usage);
  if (!exceeded) return;
  const limit =
    exceeded === "sandboxes" ? `${quota.maxSandboxes} sandboxes at once` : `${quota.maxMemoryMb} MB of memory`;
  throw new DomainError("PROVISIONING_FAILED", "The quota owner of this workspace has used up their quota.", {
    hint: `A user's workspaces may hold ${limit} together: those they created and those they took over. Stop a sandbox in one of them, or ask the operator for more.`,
  });
}

function checkInstallationQuota(quota: Quota, usage: Usage): void {
  const exceeded = exceededLimit(quota, usage);
  if (!exceeded) return;
  throw new DomainError("PROVISIONING_FAILED", "The installation has no capacity for this sandbox.", {
    hint: `The installation is full: all workspaces together have reached its limit of ${exceeded}. Try again when other sandboxes have ended, or ask the operator for more.`,
  });
}
