import type { Queries, QueryConnection } from "@sandgate/kit/storage/sqlite";
import type { AuditEntry } from "../domain/audit.ts";
import { type AuditRow, toEntry } from "./audit.sqlite.rows.ts";
import type { AuditQuery, NumberedEntry } from "./audit.ts";

export const auditQueries = {
  listAudit(db: QueryConnection, query: AuditQuery): AuditEntry[] {
    const { workspaceId, actorId, action, after, since, until, limit } = query;
    // Named, as the planner might prefer an index after which it has to sort.
    const filters = [
      workspaceId !== undefined && "of_workspace",
      actorId !== undefined && "by_actor",
      action !== undefined && "by_action",
    ].filter((name) => name !== false);
    const index = filters.length === 0 ? "all" : filters.join("_");
    const rows = db.all<AuditRow>(
      `SELECT * FROM audit_entries INDEXED BY audit_entries_${index}
       WHERE ${workspaceId === undefined ? "" : "workspace_id = :workspaceId AND"}
         ${actorId === undefined ? "" : "actor_id = :actorId AND"}
         ${action === undefined ? "" : "action = :action AND"}
         at >= :since AND (at, id) < (:before, :id)
       ORDER BY at DESC, id DESC LIMIT :limit`,
      {
        ...(workspaceId !== undefined && { workspaceId }),
        ...(actorId !== undefined && { actorId }),
        ...(action !== undefined && { action }),
        since: since ?? 0,
        // Whichever is earlier; no id is smaller than an empty one.
        ...(after && (until === undefined || after.at < until)
          ? { before: after.at, id: after.id }
          : { before: until ?? Number.MAX_SAFE_INTEGER, id: "" }),
        limit,
      },
    );
    return rows.map(toEntry);
  },

  listAuditAfter(db: QueryConnection, sequence: number, limit: number): NumberedEntry[] {
    return db
      .all<AuditRow & { sequence: number }>(
        "SELECT * FROM audit_entries WHERE sequence > ? ORDER BY sequence LIMIT ?",
        sequence,
        limit,
      )
      .map((row) => ({ sequence: row.sequence, entry: toEntry(row) }));
  },
} satisfies Queries;
