import { DomainError } from "@sandgate/kit/base/domain-error";

/** What a workspace may hold at once. 0 means no limit. */
export interface Quota {
  maxSandboxes: number;
  maxMemoryMb: number;
}

/** Throws PROVISIONING_FAILED when what a workspace would hold with its new sandbox is more than its quota. */
export function checkQuota(quota: Quota, held: { sandboxes: number; memoryMb: number }): void {
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
