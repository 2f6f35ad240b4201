import type { AuditEntry } from "../domain/audit.ts";

/** The position of an entry in a log, newest first: by time, then by id. */
export interface AuditPosition {
  at: Date;
  id: string;
}

/** Which entries of which log; what is undefined selects all. */
export interface AuditQuery {
  workspaceId: string | undefined;
  action: string | undefined;
  actorId: string | undefined;
  /** Inclusive. */
  since: Date | undefined;
  /** Exclusive. */
  until: Date | undefined;
  /** The last entry of the page before. */
  after: AuditPosition | undefined;
  limit: number;
}

/** An entry with its number in the order in which the entries were added. */
export interface NumberedEntry {
  sequence: number;
  entry: AuditEntry;
}

/** Who did what, kept until it expires. */
export interface AuditLog {
  /** Adds those of the entries whose ids it doesn't have, in this order. */
  append(entries: readonly AuditEntry[]): Promise<void>;
  /** Newest first: by time, then by id. */
  list(query: AuditQuery): Promise<AuditEntry[]>;
  /** Up to `limit` entries that were added after this one, in the order in which they were. 0: from the first. */
  listAfter(sequence: number, limit: number): Promise<NumberedEntry[]>;
  /** Removes up to `limit` entries from before this time, and returns how many. */
  sweep(before: Date, limit: number): Promise<number>;
  /** The number of the last entry that a copy of the log has; 0: none yet. */
  findCopyCursor(copy: string): Promise<number>;
  setCopyCursor(copy: string, sequence: number): Promise<void>;
}
