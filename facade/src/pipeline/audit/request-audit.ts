import { isUuid } from "@sandgate/kit/base/ids";
import type { PublicReason } from "@sandgate/kit/base/reasons";
import { usernameKey } from "@sandgate/kit/base/usernames";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { workspaceNamedBy } from "../admission/admission.ts";
import type { Report } from "../base/answered.ts";
import { addressOf } from "../base/request-context.ts";
import { accessOfRoute } from "../base/route-rules.ts";
import { codeOf } from "../errors/envelope.ts";
import type { AuditedAction, AuditRecorder } from "./recorder.ts";

/** The errors by which somebody is refused a right. */
const refusals: ReadonlySet<PublicReason> = new Set([
  "EMAIL_NOT_VERIFIED",
  "FORBIDDEN",
  "INSUFFICIENT_ROLE",
  "INVALID_CREDENTIALS",
  "INVALID_TOKEN",
  "WORKSPACE_FORBIDDEN",
]);

/** What a parameter of a path names. An API token's is not here, since its value may be the token itself. */
const targetTypes: Readonly<Record<string, string>> = {
  identity_id: "identity",
  image_id: "image",
  registry_id: "registry",
  sandbox_id: "sandbox",
  session_id: "session",
  user_id: "user",
};

/**
 * Returns what records requests that have no event: refused ones of somebody signed in, sign-ins that fail, and reads
 * that show what secrets there are. Nothing that a client typed is recorded, but ids, which tell nothing when they are
 * wrong. Every route that can be refused names its action.
 */
export function auditRequests(app: FastifyInstance, recorder: AuditRecorder): Report {
  app.decorateRequest("failure", undefined);
  app.addHook("onRoute", ({ config, method, url }) => {
    const rules = config?.rules;
    if (!rules || rules.audit !== undefined || accessOfRoute(rules, url).credential === "none") return;
    throw new Error(`${method} ${url} has no action for the audit log`);
  });
  return (request, reply) => {
    const action = actionOf(request, reply.statusCode);
    if (action) recorder.recordAction(action);
  };
}

function actionOf(request: FastifyRequest, status: number): AuditedAction | undefined {
  const { audit: action, auditReads } = request.routeOptions.config.rules ?? {};
  if (action === undefined) return undefined;
  const { failure, signedIn } = request;
  const about = { action, address: addressOf(request), requestId: request.id };
  if (action === "user.sign_in") {
    if (failure === undefined || !(refusals.has(failure) || failure === "RATE_LIMITED")) return undefined;
    return { ...about, kind: "sign_in", outcome: codeOf(failure), username: usernameIn(request.body) };
  }
  if (!signedIn) return undefined;
  const { user } = signedIn;
  if (failure !== undefined && refusals.has(failure)) {
    return { ...about, ...subjectOf(request, failure), kind: "refused", outcome: codeOf(failure), user };
  }
  if (status >= 300 || !auditReads) return undefined;
  return { ...about, ...subjectOf(request, undefined), kind: "read", outcome: "success", user };
}

/**
 * The workspace whose log shows the action, and what the action was done to. What somebody tried in a workspace of
 * others is not shown there: only operators see it, so that nobody writes into another's log.
 */
function subjectOf(
  request: FastifyRequest,
  failure: PublicReason | undefined,
): Pick<AuditedAction, "target" | "workspaceId"> {
  const named = workspaceNamedBy(request);
  if (failure === "WORKSPACE_FORBIDDEN") {
    return named !== undefined && isUuid(named) ? { target: { type: "workspace", id: named } } : {};
  }
  // Only a member can have a role that is too low.
  const workspaceId = request.inWorkspace?.workspaceId ?? (failure === "INSUFFICIENT_ROLE" ? named : undefined);
  return { workspaceId, target: targetOf(request.params) };
}

function targetOf(params: unknown): AuditedAction["target"] {
  if (typeof params !== "object" || params === null) return undefined;
  for (const [name, id] of Object.entries(params)) {
    const type = targetTypes[name];
    if (type !== undefined && typeof id === "string" && isUuid(id)) return { type, id };
  }
  return undefined;
}

function usernameIn(body: unknown): string | undefined {
  if (typeof body !== "object" || body === null || !("username" in body)) return undefined;
  return typeof body.username === "string" ? usernameKey(body.username) : undefined;
}
