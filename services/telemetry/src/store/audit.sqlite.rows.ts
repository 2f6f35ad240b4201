import type { AuditEntry } from "../domain/audit.ts";

/** A row of `audit_entries` besides its number. */
export type AuditRow = ReturnType<typeof toRow>;

export function toRow(entry: AuditEntry) {
  return {
    id: entry.id,
    at: entry.at.getTime(),
    workspace_id: entry.workspaceId ?? null,
    actor_id: entry.actorId ?? null,
    credential_kind: entry.credential?.kind ?? null,
    credential_id: entry.credential?.id ?? null,
    address: entry.address ?? null,
    action: entry.action,
    target_type: entry.target?.type ?? null,
    target_id: entry.target?.id ?? null,
    target_details: entry.target?.details ? JSON.stringify(entry.target.details) : null,
    outcome: entry.outcome,
    request_id: entry.requestId ?? null,
    count: entry.count,
  };
}

export function toEntry(row: AuditRow): AuditEntry {
  const { credential_kind: kind, credential_id } = row;
  return {
    id: row.id,
    at: new Date(row.at),
    workspaceId: row.workspace_id ?? undefined,
    actorId: row.actor_id ?? undefined,
    credential: kind === null ? undefined : { kind, id: credential_id ?? "" },
    address: row.address ?? undefined,
    action: row.action,
    target: targetOf(row),
    outcome: row.outcome,
    requestId: row.request_id ?? undefined,
    count: row.count,
  };
}

function targetOf({ target_type: type, target_id: id, target_details: details }: AuditRow): AuditEntry["target"] {
  if (type === null) return undefined;
  return { type, id: id ?? "", ...(details !== null && { details: JSON.parse(details) }) };
}
