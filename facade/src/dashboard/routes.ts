import serveFiles from "@fastify/static";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply } from "fastify";
import { Type } from "typebox";
import type { App } from "../pipeline/base/app.ts";
import type { RouteRules } from "../pipeline/base/route-rules.ts";
import type { RouteContext } from "../pipeline/route.ts";
import { type FirstPage, openBuiltFiles } from "./built-files.ts";
import { prefixOf } from "./session-cookie.ts";
import { sessionRoutes } from "./session-routes.ts";

const rules: RouteRules = { rpc: "none" };
const hide = true;
/** The names of assets change with their content. */
const yearMs = 365 * 24 * 3600 * 1000;

/**
 * What the dashboard's pages may do: run and load what this server has, and call it. The terminal styles itself with
 * rules that it writes. No text becomes markup or script (Trusted Types).
 */
const policyOf = ({ scriptDigests }: FirstPage) =>
  [
    "default-src 'none'",
    ["script-src 'self'", ...scriptDigests].join(" "),
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'self'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join("; ");

/**
 * The pages that people use, their session, and the way there from `/`. Where the dashboard isn't enabled, `/` leads to
 * the reference alone.
 */
export async function dashboardRoutes(
  app: App,
  context: RouteContext & { enabled: boolean; folder: string | undefined },
): Promise<void> {
  const { enabled, folder, publicUrl } = context;
  const files = openBuiltFiles(folder);
  const prefix = prefixOf(publicUrl);

  app.get("/", { config: { rules }, schema: { hide } }, async (request, reply) => {
    const isBrowser = /\btext\/html\b/.test(request.headers.accept ?? "");
    const page = enabled && isBrowser ? await files.firstPage(prefix) : undefined;
    return reply.header("vary", "Accept").redirect(`${prefix}${page ? "/dashboard/" : "/docs"}`);
  });
  if (!enabled) return;

  await app.register(sessionRoutes, context);
  await app.register(serveFiles, {
    serve: false,
    root: files.assets,
    preCompressed: true,
    acceptRanges: false,
    suppressWarning: true,
  });

  app.get(
    "/dashboard/assets/:name",
    { config: { rules }, schema: { hide, params: Type.Object({ name: Type.String() }) } },
    async (request, reply) => {
      const { name } = request.params;
      if (!(await files.has(name))) throw new DomainError("NOT_FOUND", "The dashboard has no such file.");
      // By these it could be refused, and a file that never changes needs none of them.
      for (const condition of ["if-match", "if-unmodified-since"]) delete request.raw.headers[condition];
      return reply.sendFile(name, { maxAge: yearMs, immutable: true });
    },
  );

  // Which page an address shows is decided in the browser.
  for (const path of ["/dashboard", "/dashboard/*"]) {
    app.get(path, { config: { rules }, schema: { hide } }, async (request, reply) => {
      const page = await files.firstPage(prefix);
      if (!page) {
        throw new DomainError("NOT_FOUND", "The dashboard is not built.", {
          hint: "`npm start` builds it in the background, which takes some seconds; `npm run build:dashboard` builds it at once.",
        });
      }
      return sendPage(reply, page, request.headers["if-none-match"]);
    });
  }
}

function sendPage(reply: FastifyReply, page: FirstPage, known: string | undefined): FastifyReply {
  const { html, etag } = page;
  reply.headers({
    "cache-control": "no-cache",
    "content-security-policy": policyOf(page),
    "cross-origin-opener-policy": "same-origin",
    etag,
  });
  // A proxy that compresses answers makes the tag a weak one.
  if (known?.replace(/^W\//, "") === etag) return reply.code(304).send();
  return reply
    .type("text/html; charset=utf-8")
    .serializer((text: string) => text)
    .send(html);
}
