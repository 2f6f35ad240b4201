import type { CredentialKind } from "@sandgate/kit/rpc/context";

/** Who did what, when, on what, and with what outcome. Only ids and fixed words: never a secret, nor a text that a user typed. */
export interface AuditEntry {
  /** UUIDv7; of an entry that comes from an event, the event's. */
  id: string;
  at: Date;
  /** Undefined for what belongs to no workspace. */
  workspaceId: string | undefined;
  /** The user. Undefined when nobody was signed in, or the platform acted by itself. */
  actorId: string | undefined;
  credential: { kind: CredentialKind; id: string } | undefined;
  /** The client's. */
  address: string | undefined;
  /** One of auditActions, or a word of a newer version. */
  action: string;
  target: { type: string; id: string } | undefined;
  /** `success`, or an error code. */
  outcome: string;
  requestId: string | undefined;
  /** How many calls the entry stands for. */
  count: number;
}

/** The position of an entry in a log, newest first: by time, then by id. */
export interface AuditPlace {
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
  after: AuditPlace | undefined;
  limit: number;
}

/** An entry with its number in the order in which the entries were added. */
export interface NumberedEntry {
  sequence: number;
  entry: AuditEntry;
}

/** Where the audit log is kept. */
export interface AuditStore {
  /** Adds those of the entries whose ids it doesn't have, in this order. */
  appendAudit(entries: readonly AuditEntry[]): Promise<void>;
  /** Newest first: by time, then by id. */
  listAudit(query: AuditQuery): Promise<AuditEntry[]>;
  /** Up to `limit` entries that were added after this one, in the order in which they were. 0: from the first. */
  listAuditAfter(sequence: number, limit: number): Promise<NumberedEntry[]>;
  /** Removes up to `limit` entries from before this time, and returns how many. */
  sweepAudit(before: Date, limit: number): Promise<number>;
  /** The number of the last entry that a copy of the log has; 0: none yet. */
  findAuditCursor(copy: string): Promise<number>;
  setAuditCursor(copy: string, sequence: number): Promise<void>;
}
