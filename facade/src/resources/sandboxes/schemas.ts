import { Type } from "typebox";
import {
  Id,
  Moment,
  NextCursor,
  NullableInteger,
  NullableMoment,
  NullableText,
  Page,
  TextByName,
} from "../../pipeline/schema-parts.ts";

export const ProvisionBody = Type.Object({
  image_id: Type.String(),
  name: Type.Optional(
    Type.String({
      pattern: "^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
      "x-issue": "must be 1 to 63 lower case letters, digits and dashes, with no dash at either end",
      description: "Made up when left out. Not in the form of a UUID.",
    }),
  ),
  labels: Type.Optional(
    Type.Unsafe<Record<string, string>>({
      type: "object",
      maxProperties: 64,
      propertyNames: { minLength: 1, maxLength: 63 },
      additionalProperties: { type: "string", maxLength: 255 },
    }),
  ),
});
export const WaitBody = Type.Object({
  sandbox_id: Type.String({ description: "Id or name." }),
  timeout_seconds: Type.Optional(Type.Integer({ minimum: 1, maximum: 240, description: "60 when left out." })),
});
export const SandboxParams = Type.Object({ sandbox_id: Type.String({ description: "Id or name." }) });
export const sandboxStates = ["provisioning", "ready", "stopping", "stopped", "failed"] as const;
const anyState = sandboxStates.join("|");
export const SandboxQuery = Type.Object({
  ...Page,
  state: Type.Optional(
    Type.String({
      pattern: `^(?:${anyState})(?:,(?:${anyState}))*$`,
      "x-issue": `must be a comma list of ${sandboxStates.join(", ")}`,
      description: `A comma list of ${sandboxStates.join(", ")}.`,
    }),
  ),
  label: Type.Optional(
    Type.Array(Type.String({ pattern: "^[^:]+:", "x-issue": "must be key:value" }), {
      // As many as a sandbox can have.
      maxItems: 64,
      description: "`key:value`; may be repeated, and all have to match.",
    }),
  ),
});
export const Sandbox = Type.Object({
  id: Id,
  name: Type.String(),
  workspace_id: Type.String(),
  image_id: Type.String(),
  image: Type.String(),
  image_digest: NullableText,
  state: Type.Unsafe<(typeof sandboxStates)[number]>({ type: "string", enum: [...sandboxStates] }),
  state_reason: NullableText,
  message: NullableText,
  exit_code: NullableInteger,
  labels: TextByName,
  memory_mb: Type.Integer(),
  readiness_port: NullableInteger,
  ttl_seconds: NullableInteger,
  created_by: Type.String(),
  created_at: Moment,
  updated_at: Moment,
  ready_at: NullableMoment,
  expires_at: NullableMoment,
  stopped_at: NullableMoment,
  timeline: Type.Array(Type.Object({ phase: Type.String(), at: Moment })),
});
export const SandboxList = Type.Object({ sandboxes: Type.Array(Sandbox), next_cursor: NextCursor });
