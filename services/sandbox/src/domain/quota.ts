import { DomainError } from "@sandgate/kit/base/domain-error";

/** What may be held at once. 0 means no limit. */
export interface Quota {
  maxSandboxes: number;
  maxMemoryMb: number;
}

export interface Quotas {
  /** Of each workspace. */
  workspace: Quota;
  /** Of all workspaces that count towards one user's limits. */
  user: Quota;
  /** Of all workspaces together: what the host can carry. */
  installation: Quota;
}

/** Whose limits a workspace counts towards, with all that it holds. */
export interface Charge {
  userId: string;
  /** The workspace's version when it began to: of two charges the one with the greater holds. */
  since: number;
}

/** The sandboxes that have not ended, and their memory. */
export interface Held {
  sandboxes: number;
  memoryMb: number;
}

export function isLimited({ maxSandboxes, maxMemoryMb }: Quota): boolean {
  return maxSandboxes > 0 || maxMemoryMb > 0;
}

/** Throws PROVISIONING_FAILED when what a workspace would hold with its new sandbox is more than its quota. */
export function checkQuota(quota: Quota, held: Held): void {
  if (quota.maxSandboxes > 0 && held.sandboxes > quota.maxSandboxes) {
    throw new DomainError("PROVISIONING_FAILED", "The workspace's quota of sandboxes is used up.", {
      hint: `A workspace may hold ${quota.maxSandboxes} sandboxes at once. Stop one, or ask the operator for more.`,
    });
  }
  if (quota.maxMemoryMb > 0 && held.memoryMb > quota.maxMemoryMb) {
    throw new DomainError("PROVISIONING_FAILED", "The workspace's quota of memory is used up.", {
      hint: `A workspace's sandboxes may hold ${quota.maxMemoryMb} MB together; with this one they would hold ${held.memoryMb} MB. Stop one, or ask the operator for more.`,
    });
  }
}

/** The same for all workspaces that are charged to one user, who need not be the one who asks. */
export function checkUserQuota({ maxSandboxes, maxMemoryMb }: Quota, held: Held): void {
  const tooMany = maxSandboxes > 0 && held.sandboxes > maxSandboxes;
  if (!tooMany && !(maxMemoryMb > 0 && held.memoryMb > maxMemoryMb)) return;
  const limit = tooMany ? `${maxSandboxes} sandboxes at once` : `${maxMemoryMb} MB of memory`;
  throw new DomainError("PROVISIONING_FAILED", "The quota of the user whom this workspace counts for is used up.", {
    hint: `A user's workspaces may hold ${limit} together: those they created or took over. Stop a sandbox in one of them, or ask the operator for more.`,
  });
}

/** The same for all workspaces together. */
export function checkInstallationQuota({ maxSandboxes, maxMemoryMb }: Quota, held: Held): void {
  const tooMany = maxSandboxes > 0 && held.sandboxes > maxSandboxes;
  if (!tooMany && !(maxMemoryMb > 0 && held.memoryMb > maxMemoryMb)) return;
  throw new DomainError("PROVISIONING_FAILED", "The installation has no capacity for this sandbox.", {
    hint: `The installation is full: its limit of ${tooMany ? "sandboxes" : "memory"} over all workspaces is reached. Try again when others have ended, or ask the operator for more.`,
  });
}
