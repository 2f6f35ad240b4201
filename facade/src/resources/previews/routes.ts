import { PreviewService } from "@sandgate/proto/sandbox/v1/previews";
import { callFor } from "../../pipeline/base/request-context.ts";
import { inSandbox, ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { toIsoMillis } from "../../pipeline/messages/times.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { CreatingInWorkspaceHeaders, NoContent, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { createPreviewMapper, fromHostHeader, idsOf } from "./mapping.ts";
import {
  CreatedPreview,
  CreatePreviewBody,
  CreatePreviewLinkBody,
  Preview,
  PreviewLink,
  PreviewList,
  PreviewParams,
} from "./schemas.ts";

const { method: rpc } = PreviewService;
const tags = ["Ports"];
const defaultTtlSeconds = 3_600;
const defaultLinkTtlSeconds = 300;

export const previewRoutes: RoutePlugin = async (app, { clients: { previews }, previewUrl }) => {
  const toPreview = createPreviewMapper(previewUrl);

  app.post(
    "/sandboxes/:sandbox_id/ports",
    {
      config: { rules: { rpc: rpc.createPreview, audit: "preview.create", isChange: true, errors: inSandbox } },
      schema: {
        tags,
        summary: "Make a preview of a port",
        description:
          "Makes an address that reaches a server in the sandbox over HTTP and WebSocket. A sandbox can have 20. The preview ends when its time is up, when the sandbox ends, or when you leave the workspace. Only this response shows the token.",
        headers: CreatingInWorkspaceHeaders,
        params: SandboxParams,
        body: CreatePreviewBody,
        response: { 201: CreatedPreview },
      },
    },
    async (request, reply) => {
      const { port, ttl_seconds, public: isPublic = false, host_header = "preview" } = request.body;
      const { preview, token } = await previews.createPreview(
        {
          sandbox: sandboxIdOf(request.params.sandbox_id),
          port,
          ttlSeconds: ttl_seconds ?? defaultTtlSeconds,
          public: isPublic,
          hostHeader: fromHostHeader(host_header),
        },
        callFor(request),
      );
      return reply.code(201).send({ ...toPreview(present(preview)), token });
    },
  );

  app.get(
    "/sandboxes/:sandbox_id/ports",
    {
      config: { rules: { rpc: rpc.listPreviews, audit: "preview.list", errors: inSandbox } },
      schema: {
        tags,
        summary: "List previews of ports",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        response: { 200: PreviewList },
      },
    },
    async (request) => {
      const listed = await previews.listPreviews({ sandbox: sandboxIdOf(request.params.sandbox_id) }, callFor(request));
      return { previews: listed.previews.map(toPreview) };
    },
  );

  app.get(
    "/sandboxes/:sandbox_id/ports/:preview_id",
    {
      config: { rules: { rpc: rpc.getPreview, audit: "preview.read", errors: ofThingInSandbox } },
      schema: {
        tags,
        summary: "Read a preview of a port",
        headers: WorkspaceHeaders,
        params: PreviewParams,
        response: { 200: Preview },
      },
    },
    async (request) => {
      const { preview } = await previews.getPreview(idsOf(request.params), callFor(request));
      return toPreview(present(preview));
    },
  );

  app.delete(
    "/sandboxes/:sandbox_id/ports/:preview_id",
    {
      config: { rules: { rpc: rpc.deletePreview, audit: "preview.revoke", errors: ofThingInSandbox } },
      schema: {
        tags,
        summary: "Revoke a preview of a port",
        description: "What is open of it ends within a second.",
        headers: WorkspaceHeaders,
        params: PreviewParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await previews.deletePreview(idsOf(request.params), callFor(request));
      return reply.code(204).send(null);
    },
  );

  app.post(
    "/sandboxes/:sandbox_id/ports/:preview_id/links",
    {
      config: {
        rules: {
          rpc: rpc.createPreviewLink,
          audit: "preview.link",
          isChange: true,
          optionalBody: true,
          errors: ofThingInSandbox,
        },
      },
      schema: {
        tags,
        summary: "Make a link for a browser",
        description:
          "It opens the preview once, and leaves the browser a cookie that opens it until it ends. Any path of the preview can be opened so, with the link's `sandgate_link` in the query.",
        headers: WorkspaceHeaders,
        params: PreviewParams,
        body: CreatePreviewLinkBody,
        response: { 201: PreviewLink },
      },
    },
    async (request, reply) => {
      const { preview, link, expiresAt } = await previews.createPreviewLink(
        { ...idsOf(request.params), ttlSeconds: request.body.ttl_seconds ?? defaultLinkTtlSeconds },
        callFor(request),
      );
      const url = previewUrl(present(preview).label, link);
      return reply.code(201).send({ url, expires_at: toIsoMillis(present(expiresAt)) });
    },
  );
};
