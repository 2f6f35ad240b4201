import swagger, { type SwaggerTransform } from "@fastify/swagger";
import { type PublicReason, publicErrors, publicReasons } from "@sandgate/kit/base/reasons";
import { toPermissionName, toRoleName } from "@sandgate/kit/rpc/access";
import type { App } from "../pipeline/base/app.ts";
import { accessOfRoute, errorsOf, type RouteRules } from "../pipeline/base/route-rules.ts";
import { codeOf } from "../pipeline/errors/envelope.ts";
import { locationsOf, responsesOf } from "../pipeline/validation/request-check.ts";
import { extractComponents } from "./components.ts";
import { renderQuickStart, tags } from "./introduction.ts";

const envelope = {
  $id: "Error",
  type: "object",
  description: "The body of every error response. Branch on `error.code`.",
  required: ["error"],
  properties: {
    error: {
      title: "ErrorBody",
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
          description:
            "One item for each invalid field. `validation_error` has it, and so has `invalid_credentials` about a code of the second factor.",
          items: {
            title: "ErrorDetail",
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
  "RateLimit-Limit": {
    type: "integer",
    description:
      "Requests in the window that RateLimit-Reset ends: a minute, or an hour for what creates and changes. Missing where there is no limit.",
  },
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
  const permission = toPermissionName(access.permission);
  const needs = [
    access.workspace && `Needs the ${toRoleName(access.workspace.least)} role in the workspace.`,
    permission && `An API token that has \`permissions\` needs \`${permission}\` among them.`,
    access.anyPermission && "Any API token may call it, whatever `permissions` it has.",
    access.credential === "session" && "Needs a session: an API token is refused.",
    access.operator && "Only operators of the platform may call it.",
  ];
  const security = {
    none: [],
    any: [{ apiToken: [] }, { session: [] }],
    session: [{ session: [] }],
  }[access.credential];
  return {
    schema: {
      ...schema,
      description: [schema?.description, ...needs].filter(Boolean).join("\n\n"),
      ...((rules.bytes || rules.streamsBody) && { body: bytesBody }),
      ...(schema?.querystring !== undefined && { querystring: withoutRequiredDefaults(schema.querystring) }),
      operationId: schema?.operationId ?? operationIdOf(rules, url),
      security,
      response,
    },
    url: url.replace(/\/?\*$/, "/:rest"),
  };
};

const bytesBody = { content: { "application/octet-stream": { schema: { type: "string", format: "binary" } } } };

/** The name of the RPC: what it does, as a client's method is called too. */
function operationIdOf({ rpc }: RouteRules, url: string): string {
  if (rpc === "none") throw new Error(`${url} calls no RPC, so its schema needs an operationId`);
  return rpc.localName;
}

/** A client may leave out what has a default, though the handler always gets it. */
function withoutRequiredDefaults(querystring: unknown): object {
  // Routes are declared with object schemas.
  const { required = [], ...schema } = querystring as { required?: string[]; properties: Record<string, object> };
  return { ...schema, required: required.filter((name) => !("default" in (schema.properties[name] ?? {}))) };
}

/** What is read of the document. */
interface OpenApiDocument {
  info: object;
  paths: object;
  components?: { schemas?: object };
}

/** Collects the routes that are added from now on. Returns a function that makes the document. */
export async function documentRoutes(app: App, publicUrl: string): Promise<() => object> {
  app.addSchema(envelope);
  app.addSchema(listedErrors);
  await app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "Sandgate",
        version: "0.1.0",
        contact: { name: "The operator of this installation" },
        license: { name: "Apache-2.0", identifier: "Apache-2.0" },
      },
      tags,
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
  return () => {
    const { info, components, paths, ...document } = app.swagger() as OpenApiDocument;
    const { value, schemas, headers } = extractComponents({ paths, schemas: components?.schemas });
    return {
      ...document,
      info: { ...info, description: renderQuickStart(publicUrl) },
      paths: value.paths,
      components: { ...components, headers, schemas: { ...value.schemas, ...schemas } },
      servers: [{ url: publicUrl }],
      externalDocs: { url: `${publicUrl}/docs/errors`, description: "Every error code and what to do about it" },
    };
  };
}
