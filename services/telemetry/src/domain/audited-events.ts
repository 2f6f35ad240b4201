import { anyUnpack, timestampDate } from "@bufbuild/protobuf/wkt";
import type { AuditAction, AuditDetails } from "@sandgate/kit/base/audit-actions";
import { toRoleName } from "@sandgate/kit/rpc/access";
import type { Event } from "@sandgate/proto/common/v1/event";
import {
  PreviewCreatedSchema,
  PreviewLinkCreatedSchema,
  PreviewRevokedSchema,
  SandboxUsedSchema,
} from "@sandgate/proto/sandbox/v1/sandbox_events";
import { MemberAddedSchema, MemberUpdatedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import { type AuditEntry, credentialOf, withDetails } from "./audit.ts";

/** The action that each event reports. An event that isn't here reports a change of state, and has no entry. */
export const auditedActions: Readonly<Record<string, AuditAction>> = {
  "identity.user.created": "user.register",
  "identity.user.verified": "user.verify",
  "identity.user.linked": "user.link",
  "identity.user.unlinked": "user.unlink",
  "identity.user.signed_in": "user.sign_in",
  "identity.user.password_changed": "user.change_password",
  "identity.user.password_reset": "user.reset_password",
  "identity.user.second_factor_enabled": "second_factor.enable",
  "identity.user.second_factor_removed": "second_factor.remove",
  "identity.user.recovery_code_used": "second_factor.use_recovery_code",
  "identity.user.recovery_codes_replaced": "second_factor.replace_recovery_codes",
  "identity.user.made_operator": "user.make_operator",
  "identity.user.disabled": "user.disable",
  "identity.user.enabled": "user.enable",
  "identity.user.sessions_ended": "session.end_all",
  "identity.user.api_tokens_revoked": "api_token.revoke_all",
  "identity.user.deleted": "user.delete",
  "identity.session.ended": "session.end",
  "identity.api_token.created": "api_token.create",
  "identity.api_token.revoked": "api_token.revoke",
  "workspace.workspace.created": "workspace.create",
  "workspace.workspace.updated": "workspace.update",
  "workspace.workspace.deleted": "workspace.delete",
  "workspace.workspace.taken_over": "workspace.take_over",
  "workspace.member.added": "member.add",
  "workspace.member.updated": "member.update",
  "workspace.member.removed": "member.remove",
  "image-registry.image.created": "image.create",
  "image-registry.image.updated": "image.update",
  "image-registry.image.deleted": "image.delete",
  "image-registry.registry.created": "registry.create",
  "image-registry.registry.updated": "registry.update",
  "image-registry.registry.deleted": "registry.delete",
  "sandbox.sandbox.provisioned": "sandbox.provision",
  "sandbox.sandbox.extended": "sandbox.extend",
  "sandbox.sandbox.stop_requested": "sandbox.stop",
  "sandbox.sandbox.preview_created": "preview.create",
  "sandbox.sandbox.preview_revoked": "preview.revoke",
  "sandbox.sandbox.preview_link_created": "preview.link",
};

/** The event that tells its action by itself. */
export const usedEvent = "sandbox.sandbox.used";

/** The subjects of audited events: nearly all of the other services; most of sandbox's report changes of state. */
export const auditedSubjects = [
  "sandgate.identity.*.*.v1",
  "sandgate.workspace.*.*.v1",
  "sandgate.image-registry.*.*.v1",
  "sandgate.sandbox.sandbox.provisioned.v1",
  "sandgate.sandbox.sandbox.extended.v1",
  "sandgate.sandbox.sandbox.stop_requested.v1",
  "sandgate.sandbox.sandbox.preview_created.v1",
  "sandgate.sandbox.sandbox.preview_revoked.v1",
  "sandgate.sandbox.sandbox.preview_link_created.v1",
  "sandgate.sandbox.sandbox.used.v1",
];

/** The audit entry of an event; undefined for an event of which nobody is the actor. */
export function toAuditEntry(event: Event): AuditEntry | undefined {
  const [, service, type = "", name] = event.subject.split(".");
  const subject = `${service}.${type}.${name}`;
  if (subject === usedEvent) return toUseEntry(event);
  const action = auditedActions[subject];
  if (action === undefined) return undefined;
  // A deletion without a request is one that is announced again.
  if (action === "workspace.delete" && event.requestId === "") return undefined;
  // A membership's id is `<workspace id>/<user id>`.
  const target = { type, id: event.entityId.split("/").at(-1) ?? "" };
  const entry = { ...causeOf(event), action, outcome: "success", count: 1 };
  return { ...entry, target: withDetails(target, detailsOf(event)) };
}

/** The role that a member has from now on; or the preview that an event is about, and of a new one its port. */
function detailsOf({ payload }: Event): AuditDetails {
  if (!payload) return {};
  const member = anyUnpack(payload, MemberAddedSchema) ?? anyUnpack(payload, MemberUpdatedSchema);
  const role = member && toRoleName(member.role);
  if (role) return { role };
  const created = anyUnpack(payload, PreviewCreatedSchema);
  if (created) return { preview_id: created.previewId, port: String(created.port) };
  const about = anyUnpack(payload, PreviewRevokedSchema) ?? anyUnpack(payload, PreviewLinkCreatedSchema);
  return about ? { preview_id: about.previewId } : {};
}

/** Uses of a sandbox, or of several of a workspace. Undefined for what a later version sends without an action. */
function toUseEntry(event: Event): AuditEntry | undefined {
  const used = event.payload && anyUnpack(event.payload, SandboxUsedSchema);
  if (!used || used.action === "") return undefined;
  const { action, details, sandboxId, outcome, count } = used;
  const target = sandboxId === "" ? undefined : withDetails({ type: "sandbox", id: sandboxId }, details);
  return { ...causeOf(event), action, target, outcome: outcome || "success", count: count || 1 };
}

/** What an entry tells of the request that caused the event. */
function causeOf(event: Event): Omit<AuditEntry, "action" | "target" | "outcome" | "count"> {
  const { actor, occurredAt } = event;
  return {
    id: event.eventId,
    at: occurredAt ? timestampDate(occurredAt) : new Date(),
    workspaceId: event.workspaceId || undefined,
    actorId: actor?.userId || undefined,
    credential: actor && credentialOf(actor.credential, actor.credentialId),
    address: event.clientAddress || undefined,
    requestId: event.requestId || undefined,
  };
}
