import type { DescMethod } from "@bufbuild/protobuf";
import { isUuid } from "@sandgate/kit/base/ids";
import type { PublicReason } from "@sandgate/kit/base/reasons";
import { usernameKey } from "@sandgate/kit/base/usernames";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import type { FastifyInstance, FastifyRequest } from "fastify";
import { workspaceNamedBy } from "../admission/admission.ts";
import { addressOf } from "../base/request-context.ts";
import { codeOf } from "../errors/envelope.ts";
import { actionOf, isNotedRead } from "./audit-actions.ts";
import type { Act, AuditTrail } from "./recorder.ts";

/** The errors that say somebody may not do something. */
const refusals: ReadonlySet<PublicReason> = new Set([
  "EMAIL_NOT_VERIFIED",
  "FORBIDDEN",
  "INSUFFICIENT_ROLE",
  "INVALID_CREDENTIALS",
  "INVALID_TOKEN",
  "WORKSPACE_FORBIDDEN",
]);

const signIns: ReadonlySet<DescMethod> = new Set([IdentityService.method.signIn, IdentityService.method.finishSso]);

/** What a path's parameter names. A token's own is not among them: its value may be the token itself. */
const targetTypes: Readonly<Record<string, string>> = {
  image_id: "image",
  registry_id: "registry",
  sandbox_id: "sandbox",
  session_id: "session",
  user_id: "user",
};

/**
 * Notes what has no event: requests of somebody signed in that are refused, sign-ins that fail, and reads of what secrets there
 * are. Never what somebody typed: only ids, of things of which a wrong one tells nothing.
 */
export function noteActs(app: FastifyInstance, trail: AuditTrail): void {
  app.decorateRequest("failure", undefined);
  app.addHook("onResponse", (request, reply, done) => {
    const act = actOf(request, reply.statusCode);
    if (act) trail.note(act);
    done();
  });
}

function actOf(request: FastifyRequest, status: number): Act | undefined {
  const rpc = request.routeOptions.config.rules?.rpc;
  const action = rpc === undefined || rpc === "none" ? undefined : actionOf(rpc);
  if (rpc === undefined || rpc === "none" || action === undefined) return undefined;
  const { failure, signedIn } = request;
  const about = { action, address: addressOf(request), requestId: request.id };
  if (signIns.has(rpc)) {
    if (failure === undefined || !(refusals.has(failure) || failure === "RATE_LIMITED")) return undefined;
    return { ...about, kind: "sign_in", outcome: codeOf(failure), username: usernameIn(request.body) };
  }
  if (!signedIn) return undefined;
  const { user } = signedIn;
  if (failure !== undefined && refusals.has(failure)) {
    return { ...about, ...placeOf(request, failure), kind: "refused", outcome: codeOf(failure), user };
  }
  if (status >= 300 || !isNotedRead(rpc)) return undefined;
  return { ...about, ...placeOf(request, undefined), kind: "read", outcome: "success", user };
}

/**
 * The workspace in whose log the act is shown, and what it was done to. What somebody tried in a workspace that they are no
 * member of is not shown there: only operators see it, so that nobody writes into another's log.
 */
function placeOf(request: FastifyRequest, failure: PublicReason | undefined): Pick<Act, "target" | "workspaceId"> {
  const named = workspaceNamedBy(request);
  if (failure === "WORKSPACE_FORBIDDEN") {
    return named !== undefined && isUuid(named) ? { target: { type: "workspace", id: named } } : {};
  }
  // A role that is not enough is a member's.
  const workspaceId = request.inWorkspace?.workspaceId ?? (failure === "INSUFFICIENT_ROLE" ? named : undefined);
  return { workspaceId, target: targetOf(request.params) };
}

function targetOf(params: unknown): Act["target"] {
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
