import { randomBytes } from "node:crypto";
import { promisify } from "node:util";
import { gunzip, gzip } from "node:zlib";
import Fastify, { type FastifyReply } from "fastify";
import type { App } from "../pipeline/base/app.ts";
import type { RouteRules } from "../pipeline/base/route-rules.ts";
import type { RouteContext } from "../pipeline/route.ts";
import { errorsPolicy, referencePolicy, renderErrors, renderReference } from "./pages.ts";

const tags = ["Reference"];
const rules: RouteRules = { rpc: "none" };
const htmlResponse = { 200: { description: "HTML.", content: { "text/html": { schema: { type: "string" } } } } };

/** The documentation of the API. What doesn't change is generated on the first request and kept. */
export async function referenceRoutes(
  app: App,
  { document, publicUrl }: RouteContext & { document: () => object },
): Promise<void> {
  let json: string | undefined;
  let errors: string | undefined;
  let script: Promise<Buffer> | undefined;

  app.get(
    "/openapi.json",
    {
      config: { rules },
      schema: {
        tags,
        summary: "Get the OpenAPI document of this API",
        response: { 200: { description: "OpenAPI 3.1.", content: { "application/json": { schema: {} } } } },
      },
    },
    async (_request, reply) => {
      json ??= JSON.stringify(document());
      return send(reply, "application/json", json);
    },
  );

  app.get(
    "/docs",
    { config: { rules }, schema: { tags, summary: "Read the reference of this API", response: htmlResponse } },
    async (_request, reply) => {
      const { origin, pathname } = new URL(publicUrl());
      const nonce = randomBytes(16).toString("base64");
      reply.header("content-security-policy", referencePolicy(nonce, origin));
      return send(reply, "text/html", renderReference(pathname.replace(/\/$/, ""), nonce));
    },
  );

  app.get(
    "/docs/errors",
    { config: { rules }, schema: { tags, summary: "Read about the error codes", response: htmlResponse } },
    async (_request, reply) => {
      errors ??= renderErrors();
      reply.header("content-security-policy", errorsPolicy);
      return send(reply, "text/html", errors);
    },
  );

  app.get("/docs/reference.js", { config: { rules }, schema: { hide: true } }, async (request, reply) => {
    script ??= readReferenceScript();
    const compressed = await script;
    reply.headers({ vary: "Accept-Encoding", "cache-control": "public, max-age=3600" });
    if (!/\bgzip\b/.test(String(request.headers["accept-encoding"]))) {
      return send(reply, "text/javascript", await promisify(gunzip)(compressed));
    }
    return send(reply.header("content-encoding", "gzip"), "text/javascript", compressed);
  });
}

/**
 * The script of Scalar's reference, compressed. Its package exports it only as a route of a Fastify app. It is loaded
 * when it is first needed, since it takes 32 MB of memory and 0.2 s.
 */
async function readReferenceScript(): Promise<Buffer> {
  const { default: reference } = await import("@scalar/fastify-api-reference");
  const app = Fastify();
  await app.register(reference, { routePrefix: "/", configuration: { url: "/openapi.json" } });
  const { rawPayload } = await app.inject("/js/scalar.js");
  await app.close();
  return promisify(gzip)(rawPayload);
}

function send(reply: FastifyReply, type: string, body: string | Buffer): FastifyReply {
  return reply
    .type(`${type}; charset=utf-8`)
    .serializer((text: string) => text)
    .send(body);
}
