import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { auditQueries } from "./audit.sqlite.queries.ts";
import type { auditTransactions } from "./audit.sqlite.transactions.ts";
import type { AuditStore } from "./audit.ts";

/** The audit log in a service's SQLite file. */
export function createSqliteAuditStore({
  read,
  query,
  write,
}: Pick<SqliteDatabase<typeof auditTransactions, typeof auditQueries>, "read" | "query" | "write">): AuditStore {
  return {
    appendAudit: (entries) => write.appendAudit(entries),
    listAudit: (asked) => query.listAudit(asked),
    listAuditAfter: (sequence, limit) => query.listAuditAfter(sequence, limit),
    sweepAudit: (before, limit) => write.sweepAudit(before, limit),
    async findAuditCursor(copy) {
      return read.get<{ sequence: number }>("SELECT sequence FROM audit_copies WHERE copy = ?", copy)?.sequence ?? 0;
    },
    setAuditCursor: (copy, sequence) => write.setAuditCursor(copy, sequence),
  };
}
