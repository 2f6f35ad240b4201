import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply, HTTPMethods } from "fastify";
import type { App } from "../pipeline/base/app.ts";
import type { RouteRules } from "../pipeline/base/route-rules.ts";

const methods: HTTPMethods[] = ["DELETE", "GET", "PATCH", "POST", "PUT"];
const ownImages = "Register an image with POST /sandbox-images, and name it as the template.";
export const noPause = "Sandboxes can't be paused; `setTimeout` keeps one for longer.";

/** What E2B has and this platform doesn't, and what to do instead. */
const missing: Readonly<Record<string, string>> = {
  "/sandboxes/:sandbox_name/pause": noPause,
  "/sandboxes/:sandbox_name/resume": noPause,
  "/sandboxes/:sandbox_name/refreshes": "Use `setTimeout`.",
  "/sandboxes/:sandbox_name/snapshots": "Save files elsewhere, or make an image of what is needed.",
  "/sandboxes/:sandbox_name/fork": "Create another sandbox of the same image.",
  "/sandboxes/:sandbox_name/network": "What sandboxes reach is the operator's to decide.",
  "/snapshots": "Save files elsewhere, or make an image of what is needed.",
  "/templates": ownImages,
  "/templates/*": ownImages,
  "/v2/templates": ownImages,
  "/v2/templates/*": ownImages,
  "/v3/templates": ownImages,
  "/v3/templates/*": ownImages,
  "/volumes": "Save files elsewhere.",
  "/volumes/*": "Save files elsewhere.",
  "/secrets": "Give a sandbox what it needs with `envs`.",
  "/secrets/*": "Give a sandbox what it needs with `envs`.",
};

/** Answers 501 where programs ask for something that isn't here, and 404 for any other path. */
export function addMissingRoutes(app: App, sayError: NonNullable<RouteRules["sayError"]>): void {
  const config = { rules: { rpc: "none", sayError } } as const;
  for (const [url, hint] of Object.entries(missing)) {
    app.route({
      url,
      method: methods.filter((method) => !app.hasRoute({ url: `${app.prefix}${url}`, method })),
      config,
      schema: { hide: true },
      handler: (_request, reply) => refuseMissing(reply, hint),
    });
  }
  addUnknownRoute(app, sayError);
}

/** Answers 501, with what to do instead. */
export function refuseMissing(reply: FastifyReply, hint: string): FastifyReply {
  return reply.code(501).send({ code: 501, message: `This platform has no such thing. ${hint}` });
}

/** Answers 404 for every path that nothing else answers. */
export function addUnknownRoute(app: App, sayError: NonNullable<RouteRules["sayError"]>): void {
  app.route({
    url: "/*",
    method: methods,
    config: { rules: { rpc: "none", sayError } },
    schema: { hide: true },
    handler() {
      throw new DomainError("NOT_FOUND", "There is no such route.", { hint: "See docs/e2b.md for what is there." });
    },
  });
}
