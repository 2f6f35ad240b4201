/** Bytes of lines that are kept, as chunks count them; 0: no limit. */
export interface LogQuotas {
  sandboxBytes: number;
  /** Of all sandboxes of a workspace. */
  workspaceBytes: number;
}

/** By how many bytes a quota (0: none) is exceeded. */
export function overQuota(quotaBytes: number, bytes: number): number {
  return quotaBytes > 0 ? Math.max(0, bytes - quotaBytes) : 0;
}
