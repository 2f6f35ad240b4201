import type { DescMethod } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import type { AuditAction } from "@sandgate/kit/base/audit-actions";
import type { DomainError, Violation } from "@sandgate/kit/base/domain-error";
import type { PublicReason } from "@sandgate/kit/base/reasons";
import { accessOf } from "@sandgate/kit/rpc/access";
import { Permission, Role } from "@sandgate/proto/common/v1/access";
import type { FastifyRequest } from "fastify";
import type { SignedIn } from "./signed-in.ts";

/** What a route declares beside its schema. The pipeline applies it, and the OpenAPI document shows it. */
export interface RouteRules {
  /**
   * The RPC that answers the route; its access rule in the contract decides the credential, whether a workspace is
   * needed, and the role in it. none: the route calls no RPC, and anyone may call it.
   */
  rpc: DescMethod | "none";
  /** The action that the audit log records. Every route that may refuse its caller names one. */
  audit?: AuditAction;
  /** Successful requests are recorded too, because they show what secrets there are. */
  auditReads?: true;
  /**
   * sign-in, mail: counts against the address's sign-ins, or its requests that may send a mail, too. uncounted: for
   * probes, which must always get through.
   */
  limit?: "sign-in" | "mail" | "uncounted";
  /**
   * Checks that involve several fields, which a schema can't express. Also called when the fields don't match the
   * schema.
   */
  check?(request: FastifyRequest): Violation[];
  /** A ticket for the process of the path, in the query, is as good as a credential (`admission/tickets.ts`). */
  tickets?: true;
  /** Finds whom a credential in another form than an Authorization header stands for. */
  signIn?(request: FastifyRequest): Promise<SignedIn>;
  /** Says an error in another form than the API's. */
  sayError?(error: DomainError, request: FastifyRequest): ErrorAnswer;
  /** The body is bytes, whatever they are (`acceptBytes`). */
  bytes?: true;
  /** A request without a body counts as one with an empty object. */
  optionalBody?: true;
  /** It counts as a change, though it uses a sandbox: an entry of the audit log stays of it. */
  isChange?: true;
  /** The errors of the route beside those that follow from its other rules. */
  errors?: readonly PublicReason[];
  /** The handler reads the body itself (`receiveBody`), of any type and length, while it comes. */
  streamsBody?: true;
  /** Requests for a WebSocket reach the route's `preHandler`, which answers them by itself. */
  upgrades?: true;
  /** A 422 of this route has the body `{ detail: [{ loc, msg, type }] }` instead of the usual one. */
  listedErrors?: true;
}

/** An error as a route answers it. */
export interface ErrorAnswer {
  status: number;
  headers?: Readonly<Record<string, string>>;
  /** JSON, or bytes of another type that `headers` names. */
  body: object;
}

/** Who may call a route. */
export interface RouteAccess {
  /** session: an API token is not enough. */
  credential: "none" | "any" | "session";
  /** The caller must be an operator. */
  operator: boolean;
  /** What an API token that has permissions needs. Unspecified where no API token is enough, or where none is needed. */
  permission: Permission;
  /** An API token may call it, whatever permissions it has. */
  anyPermission: boolean;
  /** The role that the caller needs in a workspace, and where the request names it. */
  workspace?: { in: "path" | "header"; least: Role };
}

const open: RouteAccess = {
  credential: "none",
  operator: false,
  permission: Permission.UNSPECIFIED,
  anyPermission: false,
};

/**
 * Who may call the route with this URL pattern, from the contract of its RPC. Throws for an RPC that the facade may not
 * call.
 */
export function accessOfRoute({ rpc }: RouteRules, url: string): RouteAccess {
  if (rpc === "none") return open;
  const access = accessOf(rpc);
  if (!access?.callers.includes("facade")) throw new Error(`${url}: the facade may not call ${rpc.name}.`);
  const needsRole = access.leastRole !== Role.UNSPECIFIED;
  return {
    credential: access.sessionOnly ? "session" : access.user || access.operator || needsRole ? "any" : "none",
    operator: access.operator,
    permission: access.permission,
    anyPermission: access.anyPermission,
    ...(needsRole && {
      workspace: { in: url.includes("/:workspace_id") ? "path" : "header", least: access.leastRole },
    }),
  };
}

/**
 * Whether a request of the route may create or change something, of which the audit log and others keep a trace for
 * long. What deletes or ends something is not one: nobody may be kept from that, and there is no more of it than was
 * created. Nor is a new password, which has a limit of its own and is the answer to a stolen session, nor the use of a
 * sandbox: what runs there is short-lived, and a program may well ask for it many times a second.
 */
export function isChange(rules: RouteRules, access: RouteAccess, method: string): boolean {
  if (rules.rpc === "none" || access.credential === "none" || access.operator) return false;
  if (rules.audit === "user.change_password") return false;
  if (access.permission === Permission.USE && !rules.isChange) return false;
  return ["POST", "PUT"].includes(method) && rules.rpc.idempotency !== MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;
}

/** Who may call the route that a request matched. */
export function accessOfRequest({ routeOptions: { config, url = "" } }: FastifyRequest): RouteAccess {
  return config.rules ? accessOfRoute(config.rules, url) : open;
}

/** Every error that a route can answer with. */
export function errorsOf(
  rules: RouteRules,
  { credential, workspace }: RouteAccess,
  hasFields: boolean,
): Set<PublicReason> {
  const errors = new Set<PublicReason>(rules.errors);
  if (credential !== "none") errors.add("UNAUTHENTICATED").add("INVALID_TOKEN");
  if (credential !== "none") errors.add("FORBIDDEN");
  if (workspace) errors.add("WORKSPACE_FORBIDDEN");
  if (workspace?.in === "header") errors.add("WORKSPACE_REQUIRED");
  if (workspace?.in === "path") errors.add("WORKSPACE_NOT_FOUND");
  if (workspace && workspace.least > Role.MEMBER) errors.add("INSUFFICIENT_ROLE");
  if (hasFields) errors.add("VALIDATION_ERROR");
  if (rules.limit !== "uncounted") errors.add("RATE_LIMITED");
  return errors.add("INTERNAL_ERROR").add("UPSTREAM_ERROR");
}

declare module "fastify" {
  interface FastifyContextConfig {
    rules?: RouteRules;
  }
}
