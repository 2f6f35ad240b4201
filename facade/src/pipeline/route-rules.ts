import type { DescMethod } from "@bufbuild/protobuf";
import type { Violation } from "@sandgate/kit/base/domain-error";
import { accessOf } from "@sandgate/kit/rpc/access";
import { Role } from "@sandgate/proto/common/v1/access";
import type { FastifyRequest } from "fastify";
import type { ErrorCode } from "../error-codes.ts";

/** What a route declares beside its schema. The pipeline applies it, and the OpenAPI document shows it. */
export interface RouteRules {
  /**
   * The RPC that answers the route; its access rule in the contract decides the credential, whether a workspace is needed,
   * and the role in it. none: the route calls no RPC, and anyone may call it.
   */
  rpc: DescMethod | "none";
  /** Counted as a sign-in too. uncounted: probes, which have to get through. */
  limit?: "sign-in" | "uncounted";
  /** Rules over several fields that a schema can't say. The fields need not fit the schema. */
  check?(request: FastifyRequest): Violation[];
  /** Codes that the route answers beside those that follow from the rest. */
  errors?: readonly ErrorCode[];
  /** Spec 4.1: a 422 of this route has the shape `{ detail: [{ loc, msg, type }] }`. */
  listedErrors?: true;
}

/** Who may call a route. */
export interface RouteAccess {
  /** session: an API token is not enough. */
  credential: "none" | "any" | "session";
  /** The role that the caller needs in a workspace, and where the request names it. */
  workspace?: { in: "path" | "header"; least: Role };
}

/** Who may call the route with this URL pattern, from the contract of its RPC. Throws for an RPC that the facade may not call. */
export function accessOfRoute({ rpc }: RouteRules, url: string): RouteAccess {
  if (rpc === "none") return { credential: "none" };
  const access = accessOf(rpc);
  if (!access?.callers.includes("facade")) throw new Error(`${url}: the facade may not call ${rpc.name}.`);
  const needsRole = access.leastRole !== Role.UNSPECIFIED;
  return {
    credential: access.sessionOnly ? "session" : access.user || needsRole ? "any" : "none",
    ...(needsRole && {
      workspace: { in: url.includes("/:workspace_id") ? "path" : "header", least: access.leastRole },
    }),
  };
}

/** Who may call the route that a request matched. */
export function accessOfRequest({ routeOptions: { config, url = "" } }: FastifyRequest): RouteAccess {
  return config.rules ? accessOfRoute(config.rules, url) : { credential: "none" };
}

/** Every code a route can answer. */
export function codesOf(rules: RouteRules, { credential, workspace }: RouteAccess, hasFields: boolean): Set<ErrorCode> {
  const codes = new Set<ErrorCode>(rules.errors);
  if (credential !== "none") codes.add("unauthenticated").add("invalid_token");
  if (credential === "session") codes.add("forbidden");
  if (workspace) codes.add("workspace_forbidden");
  if (workspace?.in === "header") codes.add("workspace_required");
  if (workspace?.in === "path") codes.add("workspace_not_found");
  if (workspace && workspace.least > Role.MEMBER) codes.add("insufficient_role");
  if (hasFields) codes.add("validation_error");
  if (rules.limit !== "uncounted") codes.add("rate_limited");
  return codes.add("internal_error").add("upstream_error");
}

declare module "fastify" {
  interface FastifyContextConfig {
    rules?: RouteRules;
  }
}
