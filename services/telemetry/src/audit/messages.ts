import { timestampDate } from "@bufbuild/protobuf/wkt";
import { toCredential, toCredentialKind } from "@sandgate/kit/rpc/access";
import { createMessage } from "@sandgate/kit/rpc/messages";
import { Credential } from "@sandgate/proto/common/v1/access";
import { type AuditEntry as AuditEntryMessage, AuditEntrySchema } from "@sandgate/proto/telemetry/v1/audit";
import type { AuditEntry } from "../store/audit.ts";

export function toEntryMessage({ credential, target, ...entry }: AuditEntry): AuditEntryMessage {
  return createMessage(AuditEntrySchema, {
    ...entry,
    credential: credential ? toCredential(credential.kind) : Credential.UNSPECIFIED,
    credentialId: credential?.id,
    targetType: target?.type,
    targetId: target?.id,
  });
}

export function fromEntryMessage(message: AuditEntryMessage): AuditEntry {
  return {
    id: message.id,
    at: message.at ? timestampDate(message.at) : new Date(),
    workspaceId: message.workspaceId || undefined,
    actorId: message.actorId || undefined,
    credential: credentialOf(message.credential, message.credentialId),
    address: message.address || undefined,
    action: message.action,
    target: message.targetType ? { type: message.targetType, id: message.targetId } : undefined,
    outcome: message.outcome,
    requestId: message.requestId || undefined,
    count: message.count || 1,
  };
}

/** Undefined when nobody was signed in. */
export function credentialOf(credential: Credential, id: string): AuditEntry["credential"] {
  const kind = toCredentialKind(credential);
  return kind && { kind, id };
}
