import { ExtendSandboxRequestSchema, ProvisionSandboxRequestSchema } from "@sandgate/proto/sandbox/v1/sandbox";
import { Type } from "typebox";
import { fieldSchema } from "../pipeline/validation/field-schema.ts";

// The requests of E2B's control plane, by their published names.

const timeout = Type.Optional(fieldSchema(ExtendSandboxRequestSchema, "ttl_seconds"));
const anyObject = Type.Unsafe<Record<string, unknown> | null>({ type: ["object", "null"] });
const anyBoolean = Type.Unsafe<boolean | null>({ type: ["boolean", "null"] });
/** Null is as if it were absent. */
const orNull = (schema: object) => Type.Unsafe<Record<string, string> | null>({ ...schema, type: ["object", "null"] });

export const CreateBody = Type.Object({
  templateID: Type.String({ minLength: 1, maxLength: 128 }),
  timeout,
  metadata: Type.Optional(orNull(fieldSchema(ProvisionSandboxRequestSchema, "labels"))),
  envVars: Type.Optional(orNull(fieldSchema(ProvisionSandboxRequestSchema, "env"))),
  secure: Type.Optional(anyBoolean),
  allow_internet_access: Type.Optional(anyBoolean),
  autoPause: Type.Optional(anyBoolean),
  autoPauseMemory: Type.Optional(anyBoolean),
  autoResume: Type.Optional(anyObject),
  network: Type.Optional(anyObject),
  mcp: Type.Optional(Type.Unsafe<unknown>({})),
  iam: Type.Optional(Type.Unsafe<unknown>({})),
  volumeMounts: Type.Optional(Type.Unsafe<unknown>({})),
});
export const ConnectBody = Type.Object({ timeout, memory: Type.Optional(anyBoolean) });
export const TimeoutBody = Type.Object({ timeout: fieldSchema(ExtendSandboxRequestSchema, "ttl_seconds") });
/** Its name is not `sandbox_id`: the audit log would take what it holds for an id of ours. */
export const SandboxParams = Type.Object({ sandbox_name: Type.String() });
export const ListQuery = Type.Object({
  metadata: Type.Optional(Type.String({ maxLength: 32_768 })),
  state: Type.Optional(Type.Array(Type.String({ pattern: "^(?:running|paused)(?:,(?:running|paused))*$" }))),
  template: Type.Optional(Type.String({ maxLength: 128 })),
  startedAfter: Type.Optional(Type.String({ format: "date-time" })),
  order: Type.Optional(Type.Unsafe<"asc" | "desc">({ type: "string", enum: ["asc", "desc"] })),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
  nextToken: Type.Optional(Type.String({ maxLength: 128 })),
});
export const AliasParams = Type.Object({ alias: Type.String() });
const unixSeconds = Type.Optional(Type.Integer({ minimum: 0, maximum: 253_402_300_799 }));
export const MetricsQuery = Type.Object({ start: unixSeconds, end: unixSeconds });
