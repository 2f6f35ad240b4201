import { DomainError } from "@sandgate/kit/base/domain-error";
import { toPublicReason } from "@sandgate/kit/base/reasons";
import { requireOperator, requirePermission, requireSession } from "@sandgate/kit/rpc/access";
import { Role } from "@sandgate/proto/common/v1/access";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { signedInOf } from "../base/request-context.ts";
import { accessOfRequest, accessOfRoute, isChange, type RouteAccess, type RouteRules } from "../base/route-rules.ts";
import type { SecurityHeaders } from "../base/security-headers.ts";
import type { SignedIn } from "../base/signed-in.ts";
import { validationError } from "../errors/envelope.ts";
import type { RequestLimits } from "../limits/request-limits.ts";
import { openBodyBytes } from "../limits/unfinished-bodies.ts";
import { compileCheck } from "../validation/request-check.ts";
import type { Authenticator } from "./authentication.ts";
import { shareAcrossOrigins } from "./cors.ts";
import { type Tickets, ticketOf } from "./tickets.ts";
import type { WorkspaceScope } from "./workspace-scope.ts";

/** What the checks before every handler use. */
export interface Admission {
  authenticator: Authenticator;
  tickets: Tickets;
  scope: WorkspaceScope;
  limits: RequestLimits;
  /** The origins from which browsers may call. */
  origins: ReadonlySet<string>;
  /** Below this path browsers may call from all origins; no cookie counts there. Undefined: there is none. */
  openPath?: string | undefined;
  headers: SecurityHeaders;
}

/**
 * Adds the checks that every request has to pass, in this order: the route exists, the credential is valid, the rate
 * limit (of the credential, or of the address without one), all fields, the workspace, the role, the API token's
 * permission, the limit of changes. Who may call a route follows from the contract of its RPC.
 */
export async function admitRequests(app: FastifyInstance, admission: Admission): Promise<void> {
  app.decorateRequest("signedIn", undefined);
  app.decorateRequest("inWorkspace", undefined);
  app.decorateRequest("pattern", "unknown");
  app.decorateRequest("isLive", false);
  app.decorateRequest("fault", "none");

  app.addHook("onRequest", (request, reply, done) => {
    reply.header("x-request-id", request.id).headers(admission.headers);
    // A preflight is answered below, without being counted.
    if (request.method === "OPTIONS") admission.limits.showAddress(request, reply).then(() => done(), done);
    else done();
  });
  await shareAcrossOrigins(app, admission);
  app.addHook("onRequest", (request, reply, done) => {
    if (request.routeOptions.config.rules) return done();
    const refuse = () => done(new DomainError("NOT_FOUND", "There is no such route."));
    admission.limits.countAddress(request, reply).then(refuse, done);
  });

  app.addHook("onRoute", (route) => {
    const rules = route.config?.rules;
    if (!rules) throw new Error(`${route.method} ${route.url} has no rules`);
    const access = accessOfRoute(rules, route.url);
    // Clients send fields of their own with a sign-in.
    const check = compileCheck(route.schema, { anyFields: route.url.startsWith("/auth/") });
    route.onRequest = async (request: FastifyRequest, reply: FastifyReply) => {
      request.pattern = route.url;
      await identify(admission, rules, access, request, reply);
    };
    route.preValidation = (request: FastifyRequest, _reply: FastifyReply, done: (error?: Error) => void) => {
      if (rules.optionalBody) request.body ??= {};
      const violations = check(request);
      for (const found of rules.check?.(request) ?? []) {
        if (!violations.some(({ field }) => field === found.field)) violations.push(found);
      }
      done(violations.length > 0 ? validationError(violations) : undefined);
    };
    if (access.credential === "none") {
      route.bodyLimit = openBodyBytes;
      return;
    }
    const authorizeCaller = (request: FastifyRequest) => authorize(admission.scope, request, access);
    const counting = isChange(rules, access, String(route.method)) ? [admission.limits.countChange] : [];
    route.preHandler = [authorizeCaller, ...counting, ...[route.preHandler ?? []].flat()];
  });
}

/**
 * Throws FORBIDDEN for a caller who is not an operator, and for an operator's session without a required second factor.
 */
function requireOperatorRights({ user, needsSecondFactor }: SignedIn): void {
  if (!needsSecondFactor) {
    requireOperator(user);
    return;
  }
  throw new DomainError("FORBIDDEN", "Operators need a second factor here, and this session started without one.", {
    hint: "Set one up with POST /auth/second-factor, then sign in again with a code (`otp`).",
  });
}

async function identify(
  { authenticator, limits, tickets }: Admission,
  rules: RouteRules,
  access: RouteAccess,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  if (rules.limit === "uncounted") return limits.showAddress(request, reply);
  if (access.credential === "none") {
    await limits.countAddress(request, reply);
    if (rules.limit !== undefined) await limits.countAttempt(rules.limit, request, reply);
    return;
  }
  let signedIn: SignedIn;
  try {
    const { authorization } = request.headers;
    const ticket = rules.tickets && authorization === undefined ? ticketOf(request) : undefined;
    if (rules.signIn) signedIn = await rules.signIn(request);
    else if (ticket) signedIn = await tickets.open(ticket, request.id);
    else signedIn = await authenticator.authenticate(authorization, request.id);
  } catch (error) {
    // A request without a valid credential counts against its address, and an exceeded limit is reported first.
    const refused = error instanceof DomainError && toPublicReason(error.reason) !== "UPSTREAM_ERROR";
    await (refused ? limits.countAddress(request, reply) : limits.showAddress(request, reply));
    throw error;
  }
  request.signedIn = signedIn;
  await limits.countCredential(signedIn, reply);
}

/**
 * Throws when the caller of an open request has lost access: its credential has ended, or it lacks a required right.
 */
export async function confirmAccess(
  { authenticator, scope }: Pick<Admission, "authenticator" | "scope">,
  request: FastifyRequest,
): Promise<void> {
  const { signIn } = request.routeOptions.config.rules ?? {};
  request.signedIn = signIn
    ? await signIn(request)
    : await authenticator.confirm(signedInOf(request), request.headers.authorization, request.id);
  await authorize(scope, request, accessOfRequest(request));
}

/** Checks that the caller has the rights that a route requires, and enters the workspace that the request names. */
async function authorize(scope: WorkspaceScope, request: FastifyRequest, access: RouteAccess): Promise<void> {
  const { credential, operator, workspace } = access;
  const { user } = signedInOf(request);
  if (credential === "session") requireSession(user);
  if (operator) requireOperatorRights(signedInOf(request));
  if (workspace) {
    const named = workspaceNamedBy(request, { workspace });
    if (named === undefined) throw new DomainError("WORKSPACE_REQUIRED", "The X-Workspace-Id header is missing.");
    await enterWorkspaceById(scope, request, named, { inPath: workspace.in === "path", least: workspace.least });
  }
  // Within the workspace, so that its audit log shows the refusal. Services check it, too, but not those of an earlier
  // version beside this one.
  requirePermission(user, access);
}

/** The workspace that a request names, if its route needs one. It may not exist. */
export function workspaceNamedBy(
  request: FastifyRequest,
  { workspace }: Pick<RouteAccess, "workspace"> = accessOfRequest(request),
): string | undefined {
  if (!workspace) return undefined;
  const inHeader = request.signedIn?.ticket?.workspaceId ?? request.headers["x-workspace-id"];
  const named = workspace.in === "path" ? readPathWorkspace(request.params) : inHeader;
  return typeof named === "string" && named !== "" ? named.toLowerCase() : undefined;
}

/** Checks the caller's role in a workspace. From then on the request belongs to that workspace. */
export async function enterWorkspaceById(
  scope: WorkspaceScope,
  request: FastifyRequest,
  workspaceId: string,
  o: { inPath: boolean; least: Role } = { inPath: false, least: Role.MEMBER },
): Promise<void> {
  request.inWorkspace = await scope.enter(signedInOf(request), workspaceId, { ...o, requestId: request.id });
}

function readPathWorkspace(params: unknown): unknown {
  return typeof params === "object" && params !== null && "workspace_id" in params ? params.workspace_id : undefined;
}
