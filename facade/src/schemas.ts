import { type Static, type TSchema, Type } from "typebox";
import { idempotencyKeyPattern } from "./pipeline/request-context.ts";

// The shapes of the public API, which the validators, the serializers and the OpenAPI document are made from.

/** Also takes null. A list of types, since a serializer handles it without a validation at run time. */
function nullable<T extends TSchema & { type: string }>(schema: T) {
  return Type.Unsafe<Static<T> | null>({ ...schema, type: [schema.type, "null"] });
}

const Id = Type.String();
const Name = Type.String({
  minLength: 1,
  maxLength: 100,
  pattern: "^[^\\x00-\\x1f\\x7f-\\x9f]*$",
  "x-issue": "must not have control characters",
});
const Moment = Type.String({ format: "date-time" });
const NullableText = nullable(Type.String());
const NullableInteger = nullable(Type.Integer());
const NullableMoment = nullable(Moment);
/** Not Type.Record, whose pattern for names leaves out those with a line break. */
const TextByName = Type.Unsafe<Record<string, string>>({ type: "object", additionalProperties: { type: "string" } });
const NextCursor = nullable(
  Type.String({ description: "Send it as `cursor` to get the next page; null on the last one." }),
);

const Page = {
  limit: Type.Integer({ minimum: 1, maximum: 500, default: 100 }),
  cursor: Type.Optional(Type.String({ maxLength: 512, description: "An earlier answer's `next_cursor`." })),
};
export const PageQuery = Type.Object(Page);

const workspaceId = nullable(
  Type.String({ format: "uuid", description: "The workspace that the request belongs to." }),
);
const idempotencyKey = Type.String({
  pattern: idempotencyKeyPattern,
  "x-issue": "must be 1 to 255 printable characters",
  description: "The same key with the same body within 24 hours gives the first answer again.",
});
export const WorkspaceHeaders = Type.Object({ "x-workspace-id": Type.Optional(workspaceId) });
export const CreatingHeaders = Type.Object({ "idempotency-key": Type.Optional(idempotencyKey) });
export const CreatingInWorkspaceHeaders = Type.Object({
  "x-workspace-id": Type.Optional(workspaceId),
  "idempotency-key": Type.Optional(idempotencyKey),
});
export const ResumingHeaders = Type.Object({
  "x-workspace-id": Type.Optional(workspaceId),
  "last-event-id": Type.Optional(
    Type.String({ maxLength: 256, description: "The id of the last event received; the stream goes on after it." }),
  ),
});

export const NoContent = Type.Null({ description: "Done; no body." });
export const Success = Type.Object({ success: Type.Boolean() });

// Accounts

const username = Type.String({ maxLength: 254 });
const recaptchaToken = Type.Optional(
  Type.String({ maxLength: 4096, description: "May be left out where reCAPTCHA is not set up." }),
);
export const RegisterBody = Type.Object({
  username: Type.String({ format: "email", maxLength: 254 }),
  password: Type.String({ minLength: 10, maxLength: 256 }),
  recaptchaToken,
});
export const VerifyEmailBody = Type.Object({ token: Type.String({ minLength: 1, maxLength: 512 }) });
export const ResendBody = Type.Object({ username: Type.String({ minLength: 1, maxLength: 254 }) });
export const LoginBody = Type.Object({ username, password: Type.String({ maxLength: 256 }), recaptchaToken });
export const RefreshBody = Type.Object({ refresh_token: Type.String({ maxLength: 512 }) });
export const SessionTokens = Type.Object({
  success: Type.Boolean(),
  tokens: Type.Object({
    access_token: Type.String(),
    refresh_token: Type.String(),
    expires_in: Type.Integer({ description: "Seconds" }),
    refresh_expires_in: Type.Integer({ description: "Seconds" }),
  }),
});

// API tokens

export const CreateApiTokenBody = Type.Object({
  description: Type.String({ minLength: 1, maxLength: 255 }),
  expires_at: Type.Optional(Type.String({ format: "date-time" })),
  workspace_id: Type.Optional(Type.String({ description: "Binds the token to this workspace." })),
});
export const ApiTokenParams = Type.Object({ token: Type.String({ description: "The token itself or its id." }) });
export const CreatedApiToken = Type.Object({
  id: Id,
  token: Type.String({ description: "Shown this once." }),
  description: Type.String(),
  workspace_id: NullableText,
  expires_at: NullableMoment,
  created_at: Moment,
});
export const ApiToken = Type.Object({
  id: Id,
  description: Type.String(),
  token_hint: Type.String(),
  workspace_id: NullableText,
  expires_at: NullableMoment,
  created_at: Moment,
  last_used_at: NullableMoment,
});
export const ApiTokenList = Type.Object({ api_tokens: Type.Array(ApiToken), next_cursor: NextCursor });

// Workspaces and members

export const WorkspaceParams = Type.Object({ workspace_id: Type.String({ format: "uuid" }) });
export const WorkspaceBody = Type.Object({ name: Name });
type RoleName = "member" | "admin" | "owner";
const Role = Type.Unsafe<RoleName>({ type: "string", enum: ["member", "admin", "owner"] });
export const Workspace = Type.Object({
  id: Id,
  name: Type.String(),
  role: Role,
  created_at: Moment,
  updated_at: Moment,
});
export const WorkspaceList = Type.Object({ workspaces: Type.Array(Workspace), next_cursor: NextCursor });
export const MemberParams = Type.Object({ workspace_id: Type.String({ format: "uuid" }), user_id: Type.String() });
export const AddMemberBody = Type.Object({ username: Type.String({ minLength: 1, maxLength: 254 }), role: Role });
export const UpdateMemberBody = Type.Object({ role: Role });
export const Member = Type.Object({ user_id: Id, username: Type.String(), role: Role, joined_at: Moment });
export const MemberList = Type.Object({ members: Type.Array(Member), next_cursor: NextCursor });

// Images and registries

const image = {
  name: Name,
  image: Type.String({ minLength: 1, maxLength: 255 }),
  description: Type.Optional(nullable(Type.String({ maxLength: 2000 }))),
  tag: Type.Optional(
    Type.String({
      pattern: "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$",
      "x-issue": "must be an image tag: 1 to 128 letters, digits, dots, dashes and underscores",
      description: "The tag in `image`, else `latest`, when left out.",
    }),
  ),
  enabled: Type.Optional(Type.Boolean({ description: "True when left out." })),
  is_default: Type.Optional(Type.Boolean({ description: "A global default; for operators only." })),
  registry_id: Type.Optional(nullable(Type.String({ description: "The credential to pull with." }))),
  memory_mb: Type.Optional(Type.Integer({ minimum: 256, maximum: 8192, description: "In MiB; 1024 when left out." })),
  readiness_port: Type.Optional(nullable(Type.Integer({ minimum: 1, maximum: 65_535 }))),
  ttl_seconds: Type.Optional(nullable(Type.Integer({ minimum: 60, maximum: 86_400 }))),
};
export const CreateImageBody = Type.Object(image);
export const UpdateImageBody = Type.Partial(Type.Object(image));
export const ImageParams = Type.Object({ image_id: Type.String() });
export const ImageQuery = Type.Object({
  enabled_only: Type.Boolean({ default: false }),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 500 })),
  cursor: Page.cursor,
});
export const Image = Type.Object({
  id: Id,
  name: Type.String(),
  image: Type.String(),
  description: NullableText,
  tag: Type.String(),
  enabled: Type.Boolean(),
  is_default: Type.Boolean(),
  memory_mb: Type.Integer(),
  created_at: Moment,
  updated_at: Moment,
  readiness_port: NullableInteger,
  ttl_seconds: NullableInteger,
  workspace_id: NullableText,
  registry_id: NullableText,
  registry_name: NullableText,
});
export const ImageList = Type.Object({
  images: Type.Array(Image),
  total: Type.Integer({ description: "Of the whole list, whatever the page." }),
  next_cursor: NextCursor,
});

const registry = {
  name: Name,
  url: Type.String({ minLength: 1, maxLength: 255, description: "`[http(s)://]host[:port]`" }),
  username: Type.String({ minLength: 1, maxLength: 255 }),
  password: Type.String({ minLength: 1, maxLength: 4096 }),
};
export const CreateRegistryBody = Type.Object(registry);
export const UpdateRegistryBody = Type.Partial(Type.Object(registry));
export const RegistryParams = Type.Object({ registry_id: Type.String() });
export const Registry = Type.Object({
  id: Id,
  name: Type.String(),
  url: Type.String(),
  username: Type.String(),
  workspace_id: Type.String(),
  created_at: Moment,
  updated_at: Moment,
});
export const RegistryList = Type.Object({ registries: Type.Array(Registry), next_cursor: NextCursor });

// Sandboxes

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

// Monitoring

const stream = Type.Optional(
  Type.Unsafe<"stdout" | "stderr">({ type: "string", enum: ["stdout", "stderr"], description: "Filters log lines." }),
);
const include = Type.String({
  default: "logs,metrics",
  pattern: "^\\s*(?:logs|metrics)\\s*(?:,\\s*(?:logs|metrics)\\s*)*$",
  "x-issue": "must be a comma list of logs and metrics",
  description: "A comma list of `logs` and `metrics`.",
});
export const MonitoringQuery = Type.Object({
  since: Type.Optional(
    Type.String({ format: "date-time", description: "Inclusive; one hour before now when left out." }),
  ),
  until: Type.Optional(Type.String({ format: "date-time", description: "Exclusive; now when left out." })),
  limit: Type.Integer({
    minimum: 1,
    maximum: 10_000,
    default: 500,
    description: "Rows of logs and of metrics each; the newest ones of the window.",
  }),
  stream,
  include,
});
export const StreamQuery = Type.Object({ stream, include });
export const LogEntry = Type.Object({ timestamp: Moment, stream: Type.String(), log: Type.String() });
export const MetricPoint = Type.Object({
  timestamp: Moment,
  cpu_usage: Type.Number({ description: "Cumulative CPU time in seconds." }),
  memory_usage: Type.Number({ description: "The working set in bytes." }),
});
export const Monitoring = Type.Object({
  sandbox_id: Id,
  sandbox_name: Type.String(),
  logs: Type.Array(LogEntry),
  metrics: Type.Array(MetricPoint),
});

// Health

export const Alive = Type.Object({ status: Type.String() });
export const Ready = Type.Object({
  status: Type.String(),
  dependencies: TextByName,
});
