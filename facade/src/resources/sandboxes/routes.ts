import { DomainError, type Violation } from "@sandgate/kit/base/domain-error";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import type { FastifyRequest } from "fastify";
import { callFor } from "../../pipeline/base/request-context.ts";
import { inSandbox } from "../../pipeline/errors/in-sandbox.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { collectPage } from "../../pipeline/messages/pages.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { CreatingInWorkspaceHeaders, NoContent, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { imageIdOf } from "../sandbox-images/mapping.ts";
import { fromLabelPairs, fromProvisionBody, fromStateNames, sandboxIdOf, toSandbox } from "./mapping.ts";
import { requireReady } from "./require-ready.ts";
import { ExtendBody, ProvisionBody, Sandbox, SandboxList, SandboxParams, SandboxQuery, WaitBody } from "./schemas.ts";

const { method: rpc } = SandboxService;
const tags = ["Sandboxes"];
const defaultWaitSeconds = 60;
/** How much longer than the wait itself the call may take. */
const waitGraceMs = 5_000;

export const sandboxRoutes: RoutePlugin = async (app, { clients, live }) => {
  const { sandbox } = clients;
  app.post(
    "/sandboxes/provision",
    {
      config: {
        rules: {
          rpc: rpc.provisionSandbox,
          audit: "sandbox.provision",
          errors: ["IMAGE_NOT_FOUND", "IMAGE_DISABLED", "SANDBOX_NAME_CONFLICT", "PROVISIONING_FAILED", "CONFLICT"],
          check: checkImage,
        },
      },
      schema: {
        tags,
        summary: "Provision a sandbox",
        description: "Returns at once. Use POST /sandboxes/wait to wait until the sandbox is ready.",
        headers: CreatingInWorkspaceHeaders,
        body: ProvisionBody,
        response: { 201: Sandbox },
      },
    },
    async (request, reply) => {
      const { body } = request;
      if (body.image_id !== undefined) imageIdOf(body.image_id);
      const { sandbox: accepted } = await sandbox.provisionSandbox(fromProvisionBody(body), callFor(request));
      return reply.code(201).send(toSandbox(present(accepted)));
    },
  );

  app.post(
    "/sandboxes/wait",
    {
      config: {
        rules: {
          rpc: rpc.waitSandboxes,
          audit: "sandbox.read",
          errors: ["SANDBOX_NOT_FOUND", "SANDBOX_NOT_READY", "PROVISIONING_FAILED", "CONFLICT"],
        },
      },
      schema: {
        tags,
        operationId: "waitForSandbox",
        summary: "Wait until a sandbox is ready",
        headers: WorkspaceHeaders,
        body: WaitBody,
        response: { 200: Sandbox },
      },
    },
    async (request, reply) => {
      const { sandbox_id, timeout_seconds: timeoutSeconds = defaultWaitSeconds } = request.body;
      const wait = async ({ signal, checkAccess }: LiveRequest) => {
        const { sandboxes } = await sandbox.waitSandboxes(
          { idsOrNames: [sandboxIdOf(sandbox_id)], timeoutSeconds },
          callFor(request, { signal, timeoutMs: timeoutSeconds * 1000 + waitGraceMs }),
        );
        // The caller may have lost access since the last check.
        await checkAccess();
        return toSandbox(requireReady(present(sandboxes[0])));
      };
      return live.run(request, reply, wait, (cause) => {
        throw new DomainError("SANDBOX_NOT_READY", "The server is shutting down, so the wait ended early.", {
          cause,
          hint: "Send the request again.",
        });
      });
    },
  );

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

/** A sandbox is made of one image. */
function checkImage({ body }: FastifyRequest): Violation[] {
  if (typeof body !== "object" || body === null) return [];
  const [byId, byName] = [Object.hasOwn(body, "image_id"), Object.hasOwn(body, "image")];
  if (byId && byName) return [{ field: "body.image", issue: "can't be given together with image_id" }];
  return byId || byName ? [] : [{ field: "body.image_id", issue: "is required, unless image is given" }];
}
