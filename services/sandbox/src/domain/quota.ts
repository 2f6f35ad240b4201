import { DomainError } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { addMs, hourMs } from "@sandgate/kit/base/time";
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
  /** What all records of a workspace may count for, those of ended sandboxes included. 0 means no limit. */
  maxRecordBytes: number;
  /** Failed attempts of a workspace in an hour. 0 means no limit. */
  maxFailuresPerHour: number;
}

/** The failed attempts of a workspace in an hour that began with the first of them. */
export interface FailureWindow {
  failures: number;
  endsAt: Date;
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
  /** Of all records of the workspace, the new one included. */
  recordBytes: number;
  failures: FailureWindow | undefined;
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
 * Decides whether a sandbox may be created. Throws WORKSPACE_FORBIDDEN (the workspace was deleted), RATE_LIMITED (too
 * many attempts have failed), PROVISIONING_FAILED (a quota) or SANDBOX_NAME_CONFLICT.
 */
export function checkCreate({ name, createdAt }: Sandbox, quotas: Quotas, state: CreateState): void {
  if (state.isWorkspaceDeleted) throw new DomainError("WORKSPACE_FORBIDDEN", "The workspace was deleted.");
  checkFailures(quotas.maxFailuresPerHour, state.failures, createdAt);
  checkWorkspaceQuota(quotas.workspace, state.workspace);
  if (state.user) checkUserQuota(quotas.user, state.user);
  if (state.installation) checkInstallationQuota(quotas.installation, state.installation);
  if (state.isNameTaken) throw new DomainError("SANDBOX_NAME_CONFLICT", `A live sandbox has the name ${name}.`);
}

function count(sandboxes: number): string {
  return sandboxes === 1 ? "1 sandbox" : `${sandboxes} sandboxes`;
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
      ? `A workspace may hold ${count(quota.maxSandboxes)} at once.`
      : `A workspace's sandboxes may hold ${quota.maxMemoryMb} MB together; with this one they would hold ${usage.memoryMb} MB.`;
  throw new DomainError("PROVISIONING_FAILED", `The workspace has used up its quota of ${exceeded}.`, {
    errno: "EDQUOT",
    hint: `${limit} Stop one, or ask the operator for more.`,
    callersFault: true,
  });
}

function checkUserQuota(quota: Quota, usage: Usage): void {
  const exceeded = exceededLimit(quota, usage);
  if (!exceeded) return;
  const limit = exceeded === "sandboxes" ? `${count(quota.maxSandboxes)} at once` : `${quota.maxMemoryMb} MB of memory`;
  throw new DomainError("PROVISIONING_FAILED", "The quota owner of this workspace has used up their quota.", {
    errno: "EDQUOT",
    hint: `A user's workspaces may hold ${limit} together: those they created and those they took over. Stop a sandbox in one of them, or ask the operator for more.`,
    callersFault: true,
  });
}

function checkInstallationQuota(quota: Quota, usage: Usage): void {
  const exceeded = exceededLimit(quota, usage);
  if (!exceeded) return;
  throw new DomainError("PROVISIONING_FAILED", "The installation has no capacity for this sandbox.", {
    errno: "EDQUOT",
    hint: `The installation is full: all workspaces together have reached its limit of ${exceeded}. Try again when other sandboxes have ended, or ask the operator for more.`,
  });
}

export function countFailure(window: FailureWindow | undefined, now: Date): FailureWindow {
  return window && window.endsAt > now
    ? { ...window, failures: window.failures + 1 }
    : { failures: 1, endsAt: addMs(now, hourMs) };
}

function checkFailures(max: number, window: FailureWindow | undefined, now: Date): void {
  if (max === 0 || !window || window.endsAt <= now || window.failures < max) return;
  throw new DomainError("RATE_LIMITED", "Too many of the workspace's sandboxes have failed.", {
    hint: `${window.failures} sandboxes failed within an hour without having been ready, and ${max} may. GET /sandboxes?state=failed says why; mend that, and wait for the seconds in the Retry-After header.`,
    retryAfterSeconds: Math.max(1, Math.ceil((window.endsAt.getTime() - now.getTime()) / 1000)),
  });
}

/** The most records that a create deletes. Together they count for more than a new one. */
export const maxEvicted = 100;

export function needsEviction({ maxRecordBytes }: Quotas, { recordBytes }: CreateState): boolean {
  return maxRecordBytes > 0 && recordBytes > maxRecordBytes;
}

/**
 * Decides which ended records are deleted for a new one: the oldest, as few as the quota demands. Above a quota that
 * was lowered, each create deletes as many as it may. Throws PROVISIONING_FAILED if even all of them are not enough.
 *
 * @param oldest the ended records of the workspace, in their order. No more are read than are needed.
 */
export function chooseEvicted<R extends Pick<Sandbox, "recordBytes">>(
  { maxRecordBytes }: Quotas,
  state: CreateState,
  oldest: Iterable<R>,
): R[] {
  let excess = state.recordBytes - maxRecordBytes;
  const evicted: R[] = [];
  for (const record of oldest) {
    evicted.push(record);
    excess -= record.recordBytes ?? 0;
    if (excess <= 0 || evicted.length === maxEvicted) return evicted;
  }
  throw new DomainError("PROVISIONING_FAILED", "The records of the workspace's sandboxes have used up their quota.", {
    errno: "EDQUOT",
    hint: `They may take ${maxRecordBytes / mebibyte} MB, and no record of an ended sandbox is left to delete. Stop sandboxes, use fewer or shorter labels, or ask the operator for more.`,
  });
}
