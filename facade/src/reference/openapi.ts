import swagger, { type SwaggerTransform } from "@fastify/swagger";
import { type PublicReason, publicErrors, publicReasons } from "@sandgate/kit/base/reasons";
import { toRoleName } from "@sandgate/kit/rpc/access";
import type { FastifySchema } from "fastify";
import type { App } from "../pipeline/base/app.ts";
import { accessOfRoute, errorsOf } from "../pipeline/base/route-rules.ts";
import { codeOf } from "../pipeline/errors/envelope.ts";
import { locationsOf } from "../pipeline/validation/request-check.ts";

const envelope = {
  $id: "Error",
  type: "object",
  description: "The body of every error response. Branch on `error.code`.",
  required: ["error"],
  properties: {
    error: {
      type: "object",
      required: ["code", "message"],
      properties: {
        code: { type: "string", enum: publicReasons.map(codeOf) },
        message: { type: "string" },
        hint: { type: ["string", "null"], description: "What is likely to help." },
        docs_url: { type: ["string", "null"], description: "The explanation of the code." },
        retryable: { type: "boolean", default: false, description: "Whether an identical request may succeed later." },
        request_id: { type: ["string", "null"], description: "Also in the X-Request-Id header." },
        details: {
          type: ["array", "null"],
          description: "One item for each invalid field. Only `validation_error` has it.",
          items: {
            type: "object",
            required: ["issue"],
            properties: {
              issue: { type: "string" },
              field: { type: ["string", "null"], description: "A dotted path, for example `body.memory_mb`." },
            },
          },
        },
      },
    },
    detail: { type: ["string", "null"], deprecated: true, description: "A copy of `error.message`." },
  },
};

const listedErrors = {
  $id: "ListedErrors",
  type: "object",
  description: "The 422 response of DELETE /workspaces/{workspace_id}.",
  required: ["detail"],
  properties: {
    detail: {
      type: "array",
      items: {
        type: "object",
        required: ["loc", "msg", "type"],
        properties: {
          loc: { type: "array", items: { type: ["string", "integer"] } },
          msg: { type: "string" },
          type: { type: "string" },
        },
      },
    },
  },
};

const commonHeaders = {
  "X-Request-Id": { type: "string", description: "The id of the request: the one you sent, otherwise a new one." },
  "RateLimit-Limit": { type: "integer", description: "Requests per minute. Missing where there is no limit." },
  "RateLimit-Remaining": { type: "integer", description: "Requests left in this minute." },
  "RateLimit-Reset": { type: "integer", description: "Seconds until the count starts again." },
};
const retryAfterHeader = { "Retry-After": { type: "integer", description: "Seconds to wait, at least 1." } };

/** Adds to a route's schemas who may call it, and every error that it can answer with. */
const describeRoute: SwaggerTransform = ({ schema, url, route }) => {
  const rules = route.config?.rules;
  if (!rules || schema?.hide) return { schema: { ...schema, hide: true }, url };
  const access = accessOfRoute(rules, url);
  const byStatus = new Map<number, PublicReason[]>();
  for (const reason of errorsOf(rules, access, Object.keys(locationsOf(schema)).length > 0)) {
    const { status } = publicErrors[reason];
    byStatus.set(status, [...(byStatus.get(status) ?? []), reason]);
  }
  const errors = [...byStatus].toSorted(([a], [b]) => a - b);
  const response = Object.fromEntries([
    ...Object.entries(responsesOf(schema)).map(([status, success]) => [
      status,
      { description: "Success.", ...success, headers: commonHeaders },
    ]),
    ...errors.map(([status, reasons]) => [
      status,
      {
        $ref: status === 422 && rules.listedErrors ? "ListedErrors#" : "Error#",
        description: reasons.map((reason) => `\`${codeOf(reason)}\`: ${publicErrors[reason].meaning}`).join("\n\n"),
        headers: status === 429 ? { ...commonHeaders, ...retryAfterHeader } : commonHeaders,
      },
    ]),
  ]);
  const role = access.workspace && `Needs the ${toRoleName(access.workspace.least)} role in the workspace.`;
  const security = {
    none: [],
    any: [{ apiToken: [] }, { session: [] }],
    session: [{ session: [] }],
  }[access.credential];
  return {
    schema: {
      ...schema,
      description: [schema?.description, role].filter((line) => line !== undefined).join("\n\n"),
      operationId: operationIdOf(String(route.method), url),
      security,
      response,
    },
    url,
  };
};

function responsesOf(schema: FastifySchema | undefined): Record<string, Record<string, unknown>> {
  // Routes are declared with a record of schemas by status.
  return (schema?.response ?? {}) as Record<string, Record<string, unknown>>;
}

/** "GET", "/workspaces/:workspace_id/members" -> "get_workspaces_workspace_id_members" */
function operationIdOf(method: string, url: string): string {
  return [method.toLowerCase(), ...url.split("/").map((part) => part.replace(/\W/g, "_").replace(/^_/, ""))]
    .filter((part) => part !== "")
    .join("_");
}

/** Collects the routes that are added from now on. Returns a function that makes the document. */
export async function documentRoutes(app: App, publicUrl: () => string): Promise<() => object> {
  app.addSchema(envelope);
  app.addSchema(listedErrors);
  await app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "Sandgate",
        version: "0.1.0",
        description: "Runs isolated container sandboxes inside workspaces.",
        license: { name: "Apache-2.0", identifier: "Apache-2.0" },
      },
      components: {
        securitySchemes: {
          apiToken: { type: "http", scheme: "bearer", description: "A long-lived API token (`sgt_…`)." },
          session: {
            type: "http",
            scheme: "bearer",
            bearerFormat: "JWT",
            description: "The access token of a session, valid for 300 seconds.",
          },
        },
      },
    },
    transform: describeRoute,
    refResolver: { buildLocalReference: (json, _base, _fragment, index) => String(json.$id ?? `Schema${index}`) },
  });
  return () => ({
    ...app.swagger(),
    servers: [{ url: publicUrl() }],
    externalDocs: { url: `${publicUrl()}/docs/errors`, description: "Every error code and what to do about it" },
  });
}
