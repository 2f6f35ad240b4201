import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { callFor } from "../../pipeline/base/request-context.ts";
import { inSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { collectPage } from "../../pipeline/messages/pages.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { fromLabelPairs, fromStateNames, sandboxIdOf, toSandbox } from "./mapping.ts";
import { ExtendBody, Sandbox, SandboxList, SandboxParams, SandboxQuery } from "./schemas.ts";

const { method: rpc } = SandboxService;
const tags = ["Sandboxes"];

/** The sandboxes that there are. */
export const sandboxRoutes: RoutePlugin = async (app, { clients: { sandbox } }) => {
  app.get(
    "/sandboxes",
    {
      config: { rules: { rpc: rpc.listSandboxes, audit: "sandbox.list" } },
      schema: {
        tags,
        summary: "List sandboxes",
        headers: WorkspaceHeaders,
        querystring: SandboxQuery,
        response: { 200: SandboxList },
      },
    },
    async (request) => {
      const { limit, cursor, name, state, label } = request.query;
      const labels = fromLabelPairs(label);
      if (!labels) return { sandboxes: [], next_cursor: null };
      const states = fromStateNames(state);
      const filter = { states, labels, namePrefix: name ?? "" };
      const { rows, nextCursor } = await collectPage({ limit, cursor: cursor ?? "" }, async (page) => {
        const chunk = await sandbox.listSandboxes({ page, ...filter }, callFor(request));
        return { rows: chunk.sandboxes.map(toSandbox), nextCursor: chunk.nextCursor };
      });
      return { sandboxes: rows, next_cursor: nextCursor || null };
    },
  );

  app.get(
    "/sandboxes/:sandbox_id",
    {
      config: { rules: { rpc: rpc.getSandbox, audit: "sandbox.read", errors: ["SANDBOX_NOT_FOUND"] } },
      schema: {
        tags,
        summary: "Read a sandbox",
        description: "A name refers to the live sandbox with that name, otherwise to the newest ended one.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        response: { 200: Sandbox },
      },
    },
    async (request) => {
      const idOrName = sandboxIdOf(request.params.sandbox_id);
      const { sandbox: found } = await sandbox.getSandbox({ idOrName }, callFor(request));
      return toSandbox(present(found));
    },
  );

  app.post(
    "/sandboxes/:sandbox_id/extend",
    {
      config: {
        rules: {
          rpc: rpc.extendSandbox,
          audit: "sandbox.extend",
          errors: inSandbox,
        },
      },
      schema: {
        tags,
        summary: "Extend a sandbox",
        description:
          "It then ends `ttl_seconds` from now, but not earlier than before unless `shorten` is true, and never after " +
          "the time to live of its image, counted from its start.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        body: ExtendBody,
        response: { 200: Sandbox },
      },
    },
    async (request) => {
      const { ttl_seconds: ttlSeconds, shorten = false } = request.body;
      const idOrName = sandboxIdOf(request.params.sandbox_id);
      const { sandbox: extended } = await sandbox.extendSandbox({ idOrName, ttlSeconds, shorten }, callFor(request));
      return toSandbox(present(extended));
    },
  );

  app.delete(
    "/sandboxes/:sandbox_id",
    {
      config: { rules: { rpc: rpc.stopSandbox, audit: "sandbox.stop", errors: ["SANDBOX_NOT_FOUND"] } },
      schema: {
        tags,
        summary: "Stop a sandbox",
        description: "Succeeds in every state, also when repeated.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await sandbox.stopSandbox({ idOrName: sandboxIdOf(request.params.sandbox_id) }, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
