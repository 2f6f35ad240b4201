import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { decodeCursor, pageLimit, toPage } from "@sandgate/kit/base/page";
import { callOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { PageRequest } from "@sandgate/proto/common/v1/page";
import type { AuditEntry as AuditEntryMessage, AuditFilter, AuditService } from "@sandgate/proto/telemetry/v1/audit";
import type { AuditStore } from "../store/audit.ts";
import { fromEntryMessage, toEntryMessage } from "./messages.ts";

/** Answers the calls about the audit log. */
export function createAuditHandlers(store: AuditStore): ServiceImpl<typeof AuditService> {
  async function readPage(
    workspaceId: string | undefined,
    { page, filter }: { page?: PageRequest | undefined; filter?: AuditFilter | undefined },
  ): Promise<{ entries: AuditEntryMessage[]; nextCursor: string }> {
    const limit = pageLimit(page?.limit);
    const after = decodeCursor(page?.cursor ?? "");
    const found = await store.listAudit({
      workspaceId,
      action: filter?.action || undefined,
      actorId: filter?.actorId || undefined,
      since: filter?.since && timestampDate(filter.since),
      until: filter?.until && timestampDate(filter.until),
      after: after && { at: after.createdAt, id: after.id },
      limit: limit + 1,
    });
    const { rows, nextCursor } = toPage(found, limit, ({ at, id }) => ({ createdAt: at, id }));
    return { entries: rows.map(toEntryMessage), nextCursor };
  }

  return {
    listAuditEntries: (request, context) => readPage(workspaceOf(callOf(context)), request),
    listAllAuditEntries: (request) => readPage(undefined, request),
    async recordAuditEntries({ entries }) {
      await store.appendAudit(entries.map(fromEntryMessage));
      return {};
    },
  };
}
