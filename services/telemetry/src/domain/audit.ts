import { toCredentialKind } from "@sandgate/kit/rpc/access";
import type { CredentialKind } from "@sandgate/kit/rpc/context";
import type { Credential } from "@sandgate/proto/common/v1/access";

/**
 * Who did what, when, to what, with what outcome. Only ids, fixed words, and of uses of a sandbox the program or the
 * path: no secret, and no other text that a user typed.
 */
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
  target: AuditTarget | undefined;
  /** `success`, or an error code. */
  outcome: string;
  requestId: string | undefined;
  /** How many calls the entry stands for. */
  count: number;
}

export interface AuditTarget {
  type: string;
  id: string;
  /** What within it, by `auditDetails` or the names of a newer version. */
  details?: Readonly<Record<string, string>>;
}

/** The target with these details, if there are any. */
export function withDetails(target: AuditTarget, details: NonNullable<AuditTarget["details"]>): AuditTarget {
  return Object.keys(details).length > 0 ? { ...target, details } : target;
}

/** Undefined when nobody was signed in. */
export function credentialOf(credential: Credential, id: string): AuditEntry["credential"] {
  const kind = toCredentialKind(credential);
  return kind && { kind, id };
}
