import { AuditService } from "@sandgate/proto/telemetry/v1/audit";
import type { Static } from "typebox";
import { callFor } from "../../pipeline/base/request-context.ts";
import { parseMoment, toTimestamp } from "../../pipeline/messages/times.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { WorkspaceParams } from "../workspaces/schemas.ts";
import { toAuditEntry } from "./mapping.ts";
import { AuditLog, AuditQuery } from "./schemas.ts";

const { method: rpc } = AuditService;

export const auditLogRoutes: RoutePlugin = async (app, { clients: { audit } }) => {
  app.get(
    "/workspaces/:workspace_id/audit-log",
    {
      config: { rules: { rpc: rpc.listAuditEntries, audit: "audit_log.read" } },
      schema: {
        tags: ["Workspaces"],
        summary: "Read a workspace's audit log",
        description: "Who did what in the workspace, newest first, for its admins and owners.",
        params: WorkspaceParams,
        querystring: AuditQuery,
        response: { 200: AuditLog },
      },
    },
    async (request) => {
      const { entries, nextCursor } = await audit.listAuditEntries(toRequest(request.query), callFor(request));
      return { entries: entries.map(toAuditEntry), next_cursor: nextCursor || null };
    },
  );

  app.get(
    "/admin/audit-log",
    {
      config: { rules: { rpc: rpc.listAllAuditEntries, audit: "audit_log.read" } },
      schema: {
        tags: ["Operators"],
        summary: "Read the whole audit log",
        description:
          "The entries of all workspaces, deleted ones included, and those that belong to none, such as sign-ins. Newest first.",
        querystring: AuditQuery,
        response: { 200: AuditLog },
      },
    },
    async (request) => {
      const { entries, nextCursor } = await audit.listAllAuditEntries(toRequest(request.query), callFor(request));
      return { entries: entries.map(toAuditEntry), next_cursor: nextCursor || null };
    },
  );
};

function toRequest({ limit, cursor = "", action, actor = "", since, until }: Static<typeof AuditQuery>) {
  const [sinceUs, untilUs] = [since, until].map((text) => (text === undefined ? undefined : parseMoment(text)));
  return {
    page: { limit, cursor },
    filter: {
      action: action ?? "",
      actorId: actor,
      ...(sinceUs !== undefined && { since: toTimestamp(sinceUs) }),
      ...(untilUs !== undefined && { until: toTimestamp(untilUs) }),
    },
  };
}
