import type { Violation } from "@sandgate/kit/base/domain-error";
import type { RoleName } from "@sandgate/kit/rpc/context";
import type { FastifyRequest } from "fastify";
import type { ErrorCode } from "../error-codes.ts";

/** What a route asks of its callers. It stands beside the route's schema, and the OpenAPI document shows it. */
export interface RouteRules {
  /** none: anyone may call. session: an API token is not enough. */
  credential: "none" | "any" | "session";
  /** Where the workspace of the request is named. Left out: the request belongs to none. */
  workspace?: "path" | "header";
  /** The role needed in that workspace; member unless set. */
  role?: RoleName;
  /** Counted as a sign-in too. uncounted: probes, which have to get through. */
  limit?: "sign-in" | "uncounted";
  /** Rules over several fields that a schema can't say. The fields need not fit the schema. */
  check?(request: FastifyRequest): Violation[];
  /** Codes that the route answers beside those that follow from the rest. */
  errors?: readonly ErrorCode[];
  /** Spec 4.1: a 422 of this route has the shape `{ detail: [{ loc, msg, type }] }`. */
  listedErrors?: true;
}

/** Every code a route can answer. */
export function codesOf(rules: RouteRules, hasFields: boolean): Set<ErrorCode> {
  const codes = new Set<ErrorCode>(rules.errors);
  if (rules.credential !== "none") codes.add("unauthenticated").add("invalid_token");
  if (rules.credential === "session") codes.add("forbidden");
  if (rules.workspace) codes.add("workspace_forbidden");
  if (rules.workspace === "header") codes.add("workspace_required");
  if (rules.workspace === "path") codes.add("workspace_not_found");
  if (rules.role && rules.role !== "member") codes.add("insufficient_role");
  if (hasFields) codes.add("validation_error");
  if (rules.limit !== "uncounted") codes.add("rate_limited");
  return codes.add("internal_error").add("upstream_error");
}

declare module "fastify" {
  interface FastifyContextConfig {
    rules?: RouteRules;
  }
}
