import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { readPageBy } from "@sandgate/kit/base/page";
import { callOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { PageRequest } from "@sandgate/proto/common/v1/page";
import type { AuditEntry as AuditEntryMessage, AuditFilter, AuditService } from "@sandgate/proto/telemetry/v1/audit";
import type { AuditEntry } from "../domain/audit.ts";
import { fromEntryMessage, toEntryMessage } from "../messages.ts";
import type { AuditLog } from "../store/audit.ts";

/** Answers the calls about the audit log. */
export function createAuditHandlers(audit: AuditLog): ServiceImpl<typeof AuditService> {
  async function readEntries(
    workspaceId: string | undefined,
    { page, filter }: { page?: PageRequest | undefined; filter?: AuditFilter | undefined },
  ): Promise<{ entries: AuditEntryMessage[]; nextCursor: string }> {
    const { rows, nextCursor } = await readPageBy(
      ({ at, id }: AuditEntry) => ({ createdAt: at, id }),
      page,
      (limit, after) =>
        audit.list({
          workspaceId,
          action: filter?.action || undefined,
          actorId: filter?.actorId || undefined,
          since: filter?.since && timestampDate(filter.since),
          until: filter?.until && timestampDate(filter.until),
          after: after && { at: after.createdAt, id: after.id },
          limit,
        }),
    );
    return { entries: rows.map(toEntryMessage), nextCursor };
  }

  return {
    listAuditEntries: (request, context) => readEntries(workspaceOf(callOf(context)), request),
    listAllAuditEntries: (request) => readEntries(undefined, request),
    async recordAuditEntries({ entries }) {
      await audit.append(entries.map(fromEntryMessage));
      return {};
    },
  };
}
