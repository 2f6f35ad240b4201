import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { AuditAction } from "@sandgate/kit/base/audit-actions";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import type { Event } from "@sandgate/proto/common/v1/event";
import type { AuditEntry, AuditStore } from "../store/audit.ts";
import { credentialOf } from "./messages.ts";

/** What each event says somebody did. One that isn't here tells how something fares, and has no entry. */
export const actions: Readonly<Record<string, AuditAction>> = {
  "identity.user.created": "user.register",
  "identity.user.verified": "user.verify",
  "identity.user.linked": "user.link",
  "identity.user.signed_in": "user.sign_in",
  "identity.user.password_changed": "user.change_password",
  "identity.user.password_reset": "user.reset_password",
  "identity.user.second_factor_enabled": "second_factor.enable",
  "identity.user.second_factor_removed": "second_factor.remove",
  "identity.user.recovery_code_used": "second_factor.use_recovery_code",
  "identity.user.recovery_codes_replaced": "second_factor.replace_recovery_codes",
  "identity.user.disabled": "user.disable",
  "identity.user.enabled": "user.enable",
  "identity.user.sessions_ended": "session.end_all",
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
  "sandbox.sandbox.stop_requested": "sandbox.stop",
};

/**
 * The subjects with what people do. Of the other services' events nearly all are audited; of sandbox's, most tell how
 * sandboxes fare.
 */
export const subjects = [
  "sandgate.identity.*.*.v1",
  "sandgate.workspace.*.*.v1",
  "sandgate.image-registry.*.*.v1",
  "sandgate.sandbox.sandbox.provisioned.v1",
  "sandgate.sandbox.sandbox.stop_requested.v1",
];

/** Writes an entry for each audited event. One that arrives twice finds its entry there. */
export async function consumeAuditedEvents(o: { store: AuditStore; bus: EventBus }): Promise<BackgroundTask> {
  return o.bus.consume({
    consumer: "telemetry-audit",
    subjects,
    async handle(event) {
      const entry = toEntry(event);
      if (entry) await o.store.appendAudit([entry]);
    },
  });
}

/** The entry of an event; undefined for one that tells of no act. */
function toEntry(event: Event): AuditEntry | undefined {
  const [, service, type = "", name] = event.subject.split(".");
  const action = actions[`${service}.${type}.${name}`];
  if (action === undefined) return undefined;
  // A deletion without a request is one that is announced again.
  if (action === "workspace.delete" && event.requestId === "") return undefined;
  const { actor, occurredAt } = event;
  return {
    id: event.eventId,
    at: occurredAt ? timestampDate(occurredAt) : new Date(),
    workspaceId: event.workspaceId || undefined,
    actorId: actor?.userId || undefined,
    credential: actor && credentialOf(actor.credential, actor.credentialId),
    address: event.clientAddress || undefined,
    action,
    // A membership's id is `<workspace id>/<user id>`.
    target: { type, id: event.entityId.split("/").at(-1) ?? "" },
    outcome: "success",
    requestId: event.requestId || undefined,
    count: 1,
  };
}
