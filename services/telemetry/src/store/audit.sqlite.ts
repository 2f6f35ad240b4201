import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import type { auditQueries } from "./audit.sqlite.queries.ts";
import type { auditTransactions } from "./audit.sqlite.transactions.ts";
import type { AuditLog } from "./audit.ts";

export function createAuditLog({
  read,
  query,
  write,
}: Pick<SqliteDatabase<typeof auditTransactions, typeof auditQueries>, "read" | "query" | "write">): AuditLog {
  return {
    append: write.appendAudit,
    list: query.listAudit,
    listAfter: query.listAuditAfter,
    sweep: write.sweepAudit,
    async findCopyCursor(copy) {
      return read.get<{ sequence: number }>("SELECT sequence FROM audit_copies WHERE copy = ?", copy)?.sequence ?? 0;
    },
    setCopyCursor: write.setAuditCursor,
  };
}
