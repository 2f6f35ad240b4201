import { randomBytes } from "node:crypto";
import { promisify } from "node:util";
import { gunzip, gzip } from "node:zlib";
import Fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import type { App } from "../pipeline/base/app.ts";
import type { RouteRules } from "../pipeline/base/route-rules.ts";
import type { RouteContext } from "../pipeline/route.ts";
import { errorsPolicy, referencePolicy, renderErrors, renderReference } from "./pages.ts";

const compress = promisify<Buffer | string, Buffer>(gzip);
const decompress = promisify<Buffer, Buffer>(gunzip);

const tags = ["Reference"];
const rules: RouteRules = { rpc: "none" };
const htmlResponse = { 200: { description: "HTML.", content: { "text/html": { schema: { type: "string" } } } } };

/** The documentation of the API. What doesn't change is generated on the first request and kept. */
export async function referenceRoutes(
  app: App,
  { document, publicUrl }: RouteContext & { document: () => object },
): Promise<void> {
  let json: Promise<Buffer> | undefined;
  let errors: string | undefined;
  let script: Promise<Buffer> | undefined;

  app.get(
    "/openapi.json",
    {
      config: { rules },
      schema: {
        tags,
        operationId: "getOpenApiDocument",
        summary: "Get the OpenAPI document of this API",
        description: "OpenAPI 3.1, made from the schemas by which requests are checked.",
        response: { 200: { description: "OpenAPI 3.1.", content: { "application/json": { schema: {} } } } },
      },
    },
    async (request, reply) => {
      json ??= compress(JSON.stringify(document()));
      return sendCompressed(request, reply, "application/json", await json);
    },
  );

  app.get(
    "/docs",
    {
      config: { rules },
      schema: {
        tags,
        operationId: "showReference",
        summary: "Read the reference of this API",
        description: "A page made from the OpenAPI document.",
        response: htmlResponse,
      },
    },
    async (_request, reply) => {
      const { origin, pathname } = new URL(publicUrl);
      const nonce = randomBytes(16).toString("base64");
      reply.header("content-security-policy", referencePolicy(nonce, origin));
      return send(reply, "text/html", renderReference(pathname.replace(/\/$/, ""), nonce));
    },
  );

  app.get(
    "/docs/errors",
    {
      config: { rules },
      schema: {
        tags,
        operationId: "showErrorCodes",
        summary: "Read about the error codes",
        description: "What each code and each `state_reason` means.",
        response: htmlResponse,
      },
    },
    async (_request, reply) => {
      errors ??= renderErrors(publicUrl);
      reply.header("content-security-policy", errorsPolicy);
      return send(reply, "text/html", errors);
    },
  );

  app.get("/docs/reference.js", { config: { rules }, schema: { hide: true } }, async (request, reply) => {
    script ??= readReferenceScript().catch((error: unknown) => {
      script = undefined;
      throw error;
    });
    reply.header("cache-control", "public, max-age=3600");
    return sendCompressed(request, reply, "text/javascript", await script);
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
  return compress(rawPayload);
}

/** Sends what is kept compressed, as it is where the client takes that. */
async function sendCompressed(request: FastifyRequest, reply: FastifyReply, type: string, compressed: Buffer) {
  reply.header("vary", [reply.getHeader("vary"), "Accept-Encoding"].filter(Boolean).join(", "));
  if (!/\bgzip\b/.test(String(request.headers["accept-encoding"]))) {
    return send(reply, type, await decompress(compressed));
  }
  return send(reply.header("content-encoding", "gzip"), type, compressed);
}

function send(reply: FastifyReply, type: string, body: string | Buffer): FastifyReply {
  return reply
    .type(`${type}; charset=utf-8`)
    .serializer((text: string) => text)
    .send(body);
}
