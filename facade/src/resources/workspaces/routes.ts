import { DomainError } from "@sandgate/kit/base/domain-error";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { enterWorkspaceById } from "../../pipeline/admission/admission.ts";
import { callFor, signedInOf } from "../../pipeline/base/request-context.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { CreatingHeaders, NoContent, PageQuery } from "../../pipeline/validation/common-schemas.ts";
import { toWorkspace } from "./mapping.ts";
import { Workspace, WorkspaceBody, WorkspaceList, WorkspaceParams } from "./schemas.ts";

const { method: rpc } = WorkspaceService;
const tags = ["Workspaces"];

export const workspaceRoutes: RoutePlugin = async (app, { clients: { workspace }, scope }) => {
  app.get(
    "/workspaces",
    {
      config: { rules: { rpc: rpc.listWorkspaces, audit: "workspace.list" } },
      schema: {
        tags,
        summary: "List your workspaces",
        description:
          "Those that you own come first, then those that you administer, each the newest first. Every user has a personal workspace, made at the first such call. A token that is bound to a workspace sees only that one.",
        querystring: PageQuery,
        response: { 200: WorkspaceList },
      },
    },
    async (request) => {
      const { boundTo } = signedInOf(request);
      if (boundTo !== undefined) {
        await enterWorkspaceById(scope, request, boundTo);
        const { workspace: only } = await workspace.getWorkspace({}, callFor(request));
        return { workspaces: only ? [toWorkspace(only)] : [], next_cursor: null, default_workspace_id: boundTo };
      }
      const list = await workspace.listWorkspaces({ page: request.query }, callFor(request));
      return {
        workspaces: list.workspaces.map(toWorkspace),
        next_cursor: list.nextCursor || null,
        default_workspace_id: list.defaultWorkspaceId || null,
      };
    },
  );

  app.post(
    "/workspaces",
    {
      config: {
        rules: {
          rpc: rpc.createWorkspace,
          audit: "workspace.create",
          errors: ["WORKSPACE_FORBIDDEN", "INSUFFICIENT_ROLE", "CONFLICT"],
        },
      },
      schema: {
        tags,
        summary: "Create a workspace",
        description: "The caller becomes its owner.",
        headers: CreatingHeaders,
        body: WorkspaceBody,
        response: { 201: Workspace },
      },
    },
    async (request, reply) => {
      if (signedInOf(request).boundTo !== undefined) {
        throw new DomainError("WORKSPACE_FORBIDDEN", "The API token is bound to one workspace.", {
          hint: "Use a credential that is not bound to a workspace.",
        });
      }
      const { workspace: created } = await workspace.createWorkspace({ name: request.body.name }, callFor(request));
      return reply.code(201).send(toWorkspace(present(created)));
    },
  );

  app.get(
    "/workspaces/:workspace_id",
    {
      config: { rules: { rpc: rpc.getWorkspace, audit: "workspace.read" } },
      schema: { tags, summary: "Read a workspace", params: WorkspaceParams, response: { 200: Workspace } },
    },
    async (request) => {
      const { workspace: found } = await workspace.getWorkspace({}, callFor(request));
      return toWorkspace(present(found));
    },
  );

  app.put(
    "/workspaces/:workspace_id",
    {
      config: { rules: { rpc: rpc.updateWorkspace, audit: "workspace.update" } },
      schema: {
        tags,
        summary: "Rename a workspace",
        params: WorkspaceParams,
        body: WorkspaceBody,
        response: { 200: Workspace },
      },
    },
    async (request) => {
      const { workspace: updated } = await workspace.updateWorkspace({ name: request.body.name }, callFor(request));
      return toWorkspace(present(updated));
    },
  );

  app.delete(
    "/workspaces/:workspace_id",
    {
      config: { rules: { rpc: rpc.deleteWorkspace, audit: "workspace.delete", listedErrors: true } },
      schema: {
        tags,
        summary: "Delete a workspace",
        description: "Removes the workspace, its members and everything in it.",
        params: WorkspaceParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await workspace.deleteWorkspace({}, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
