import { toRole } from "@sandgate/kit/rpc/access";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { callFor } from "../../pipeline/base/request-context.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { CreatingHeaders, NoContent, PageQuery } from "../../pipeline/validation/common-schemas.ts";
import { WorkspaceParams } from "../workspaces/schemas.ts";
import { memberIdOf, toMember } from "./mapping.ts";
import { AddMemberBody, Member, MemberList, MemberParams, UpdateMemberBody } from "./schemas.ts";

const { method: rpc } = WorkspaceService;
const tags = ["Members"];

export const memberRoutes: RoutePlugin = async (app, { clients: { workspace } }) => {
  app.get(
    "/workspaces/:workspace_id/members",
    {
      config: { rules: { rpc: rpc.listMembers, audit: "member.list" } },
      schema: {
        tags,
        summary: "List the members of a workspace",
        params: WorkspaceParams,
        querystring: PageQuery,
        response: { 200: MemberList },
      },
    },
    async (request) => {
      const { members, nextCursor } = await workspace.listMembers({ page: request.query }, callFor(request));
      return { members: members.map(toMember), next_cursor: nextCursor || null };
    },
  );

  app.post(
    "/workspaces/:workspace_id/members",
    {
      config: {
        rules: { rpc: rpc.addMember, audit: "member.add", errors: ["CONFLICT", "MEMBER_NOT_FOUND"] },
      },
      schema: {
        tags,
        summary: "Add a member",
        description:
          "Only an owner can add owners. The user gets a mail. Names that nobody has are few: 20 an hour for each user.",
        params: WorkspaceParams,
        headers: CreatingHeaders,
        body: AddMemberBody,
        response: { 201: Member },
      },
    },
    async (request, reply) => {
      const { username, role } = request.body;
      const { member } = await workspace.addMember({ username, role: toRole(role) }, callFor(request));
      return reply.code(201).send(toMember(present(member)));
    },
  );

  app.put(
    "/workspaces/:workspace_id/members/:user_id",
    {
      config: {
        rules: { rpc: rpc.updateMember, audit: "member.update", errors: ["CONFLICT", "MEMBER_NOT_FOUND"] },
      },
      schema: {
        tags,
        summary: "Change a member's role",
        description:
          "Only an owner can make somebody an owner or change an owner's role. The last owner can't be changed. An owner who sets their own role to owner takes the workspace over: from then on it counts towards that owner's quotas.",
        params: MemberParams,
        body: UpdateMemberBody,
        response: { 200: Member },
      },
    },
    async (request) => {
      const userId = memberIdOf(request.params.user_id);
      const { member } = await workspace.updateMember({ userId, role: toRole(request.body.role) }, callFor(request));
      return toMember(present(member));
    },
  );

  app.delete(
    "/workspaces/:workspace_id/members/:user_id",
    {
      config: {
        rules: {
          rpc: rpc.removeMember,
          audit: "member.remove",
          errors: ["INSUFFICIENT_ROLE", "CONFLICT", "MEMBER_NOT_FOUND"],
        },
      },
      schema: {
        tags,
        summary: "Remove a member",
        description:
          "Admins can remove others; every member can leave. The last owner can't be removed. An owner who removes the owner towards whose quotas the workspace counts takes it over.",
        params: MemberParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      const userId = memberIdOf(request.params.user_id);
      await workspace.removeMember({ userId }, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
