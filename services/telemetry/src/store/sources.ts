import type { Batch, SandboxRecord } from "../domain/batches.ts";
import type { LogQuotas } from "../domain/quotas.ts";

export interface Appended {
  accepted: boolean;
  storedCursor: string;
  /** Older lines that were removed for a quota. */
  removedLines: { sandbox: number; workspace: number };
}

/** How far the sources of sandboxes are stored. */
export interface Sources {
  /**
   * Stores a batch if the source's stored cursor is its `fromCursor`; otherwise returns the stored cursor and changes
   * nothing. Above a quota the oldest log chunks are removed: those of the sandbox, or those of the workspace, of which
   * ended sandboxes come first. The new lines stay. A quota that was lowered is enforced batch by batch. Throws
   * WORKSPACE_NOT_FOUND for a deleted workspace and CONFLICT for a sandbox of another workspace. A batch whose turn has
   * not come when the signal aborts is not stored, and the signal's reason is thrown.
   */
  append(batch: Batch, o: { quotas: LogQuotas; now: Date; signal?: AbortSignal | undefined }): Promise<Appended>;
  /** Undefined while nothing of the sandbox is stored. */
  findSandbox(sandboxId: string): Promise<SandboxRecord | undefined>;
  /** Whether the workspace is deleted, so that nothing of it is stored any more. */
  isWorkspaceDeleted(workspaceId: string): Promise<boolean>;
}
