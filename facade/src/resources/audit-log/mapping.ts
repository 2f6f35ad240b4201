import { type AuditDetails, auditDetails } from "@sandgate/kit/base/audit-actions";
import { toCredentialKind } from "@sandgate/kit/rpc/access";
import { AuditEntrySchema } from "@sandgate/proto/telemetry/v1/audit";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import * as schemas from "./schemas.ts";

export const toAuditEntry = createMapper(AuditEntrySchema, schemas.AuditEntry, {
  actor: ({ actorId }) => (actorId === "" ? null : { user_id: actorId }),
  credential({ credential, credentialId: id }) {
    const type = toCredentialKind(credential);
    return type === undefined ? null : { type, id };
  },
  target({ targetType: type, targetId: id, targetDetails }) {
    const details: AuditDetails = Object.fromEntries(
      Object.entries(targetDetails).filter(([name]) => auditDetails.some((known) => known === name)),
    );
    return type === "" ? null : { type, id, ...details };
  },
});
