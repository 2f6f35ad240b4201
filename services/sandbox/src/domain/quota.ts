import { DomainError } from "@sandgate/kit/base/domain-error";

/** What may be held at once. 0 means no limit. */
export interface Quota {
  maxSandboxes: number;
  maxMemoryMb: number;
}

export interface Quotas {
  /** Of each workspace. */
  workspace: Quota;
  /** Of all workspaces together: what the host can carry. */
  installation: Quota;
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

/** The same for all workspaces together. */
export function checkInstallationQuota({ maxSandboxes, maxMemoryMb }: Quota, held: Held): void {
  const tooMany = maxSandboxes > 0 && held.sandboxes > maxSandboxes;
  if (!tooMany && !(maxMemoryMb > 0 && held.memoryMb > maxMemoryMb)) return;
  throw new DomainError("PROVISIONING_FAILED", "The installation has no capacity for this sandbox.", {
    hint: `The installation is full: its limit of ${tooMany ? "sandboxes" : "memory"} over all workspaces is reached. Try again when others have ended, or ask the operator for more.`,
  });
}
