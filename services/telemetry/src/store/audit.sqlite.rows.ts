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
    outcome: entry.outcome,
    request_id: entry.requestId ?? null,
    count: entry.count,
  };
}

export function toEntry(row: AuditRow): AuditEntry {
  const { credential_kind: kind, credential_id, target_type: type, target_id } = row;
  return {
    id: row.id,
    at: new Date(row.at),
    workspaceId: row.workspace_id ?? undefined,
    actorId: row.actor_id ?? undefined,
    credential: kind === null ? undefined : { kind, id: credential_id ?? "" },
    address: row.address ?? undefined,
    action: row.action,
    target: type === null ? undefined : { type, id: target_id ?? "" },
    outcome: row.outcome,
    requestId: row.request_id ?? undefined,
    count: row.count,
  };
}
