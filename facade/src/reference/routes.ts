import type { App } from "../pipeline/route.ts";
import type { RouteRules } from "../pipeline/route-rules.ts";
import type { OpenApiDocument } from "./openapi.ts";
import { referencePolicy, renderReference } from "./reference-page.ts";

const tags = ["Reference"];
const rules: RouteRules = { rpc: "none" };

/** The API's description of itself. Both forms are made when they are first asked for, and kept. */
export function addReferenceRoutes(app: App, document: () => OpenApiDocument): void {
  let json: string | undefined;
  let page: string | undefined;

  app.get(
    "/openapi.json",
    {
      config: { rules },
      schema: {
        tags,
        summary: "This API as an OpenAPI document",
        response: { 200: { description: "OpenAPI 3.1.", content: { "application/json": { schema: {} } } } },
      },
    },
    async (_request, reply) => {
      json ??= JSON.stringify(document());
      return reply
        .type("application/json; charset=utf-8")
        .serializer((text: string) => text)
        .send(json);
    },
  );

  app.get(
    "/docs",
    {
      config: { rules },
      schema: {
        tags,
        summary: "This API as a page to read",
        response: { 200: { description: "HTML.", content: { "text/html": { schema: { type: "string" } } } } },
      },
    },
    async (_request, reply) => {
      page ??= renderReference(document());
      return reply
        .type("text/html; charset=utf-8")
        .header("content-security-policy", referencePolicy)
        .serializer((text: string) => text)
        .send(page);
    },
  );
}
