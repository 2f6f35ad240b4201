import { DomainError, type Violation } from "@sandgate/kit/base/domain-error";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import type { FastifyRequest } from "fastify";
import { callFor } from "../../pipeline/base/request-context.ts";
import type { LiveRequest } from "../../pipeline/live/live-requests.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { CreatingInWorkspaceHeaders, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { imageIdOf } from "../sandbox-images/mapping.ts";
import { fromProvisionBody, sandboxIdOf, toSandbox } from "./mapping.ts";
import { requireReady } from "./require-ready.ts";
import { ProvisionBody, Sandbox, WaitBody } from "./schemas.ts";

const { method: rpc } = SandboxService;
const tags = ["Sandboxes"];
const defaultWaitSeconds = 60;
/** How much longer than the wait itself the call may take. */
const waitGraceMs = 5_000;

/** New sandboxes, until they are ready. */
export const provisionRoutes: RoutePlugin = async (app, { clients: { sandbox }, live }) => {
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
};

/** A sandbox is made of one image. */
function checkImage({ body }: FastifyRequest): Violation[] {
  if (typeof body !== "object" || body === null) return [];
  const [byId, byName] = [Object.hasOwn(body, "image_id"), Object.hasOwn(body, "image")];
  if (byId && byName) return [{ field: "body.image", issue: "can't be given together with image_id" }];
  return byId || byName ? [] : [{ field: "body.image_id", issue: "is required, unless image is given" }];
}
