import { toRoleName } from "@sandgate/kit/rpc/access";
import type { RoleName } from "@sandgate/kit/rpc/context";
import type { ApiToken, SessionTokens } from "@sandgate/proto/identity/v1/identity";
import type { Image, Registry } from "@sandgate/proto/imageregistry/v1/image_registry";
import { type Sandbox, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import { type LogEntry, LogStream, type MetricPoint } from "@sandgate/proto/telemetry/v1/telemetry";
import type { Member, Workspace } from "@sandgate/proto/workspace/v1/workspace";
import type { Static } from "typebox";
import * as schemas from "./schemas.ts";
import { toIsoMicros, toIsoMillis, toIsoMillisOrNull } from "./times.ts";

// What the contracts' messages look like in public. An empty text stands for null where the public field may be null.

/** The value of a field that its service always sets. */
export function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("A service left out a field that it always sets.");
  return value;
}

const states = {
  provisioning: SandboxState.PROVISIONING,
  ready: SandboxState.READY,
  stopping: SandboxState.STOPPING,
  stopped: SandboxState.STOPPED,
  failed: SandboxState.FAILED,
};

/** The states of a comma list that was checked against its schema. */
export function fromStateNames(names: string | undefined): SandboxState[] {
  const wanted = new Set(names?.split(","));
  return schemas.sandboxStates.filter((name) => wanted.has(name)).map((name) => states[name]);
}

export function fromStreamName(name: "stdout" | "stderr" | undefined): LogStream {
  if (name === undefined) return LogStream.UNSPECIFIED;
  return name === "stderr" ? LogStream.STDERR : LogStream.STDOUT;
}

export function toSessionTokens(tokens: SessionTokens | undefined): Static<typeof schemas.SessionTokens> {
  const { accessToken, refreshToken, expiresInSeconds, refreshExpiresInSeconds } = present(tokens);
  return {
    success: true,
    tokens: {
      access_token: accessToken,
      refresh_token: refreshToken,
      expires_in: expiresInSeconds,
      refresh_expires_in: refreshExpiresInSeconds,
    },
  };
}

export function toApiToken(token: ApiToken): Static<typeof schemas.ApiToken> {
  return {
    id: token.id,
    description: token.description,
    token_hint: token.tokenHint,
    workspace_id: token.workspaceId || null,
    expires_at: toIsoMillisOrNull(token.expiresAt),
    created_at: toIsoMillis(present(token.createdAt)),
    last_used_at: toIsoMillisOrNull(token.lastUsedAt),
  };
}

export function toWorkspace(workspace: Workspace, role?: RoleName): Static<typeof schemas.Workspace> {
  return {
    id: workspace.id,
    name: workspace.name,
    role: toRoleName(workspace.role) ?? role ?? "member",
    created_at: toIsoMillis(present(workspace.createdAt)),
    updated_at: toIsoMillis(present(workspace.updatedAt)),
  };
}

export function toMember(member: Member): Static<typeof schemas.Member> {
  return {
    user_id: member.userId,
    username: member.username,
    role: toRoleName(member.role) ?? "member",
    joined_at: toIsoMillis(present(member.joinedAt)),
  };
}

export function toImage(image: Image): Static<typeof schemas.Image> {
  return {
    id: image.id,
    name: image.name,
    image: image.image,
    description: image.description ?? null,
    tag: image.tag,
    enabled: image.enabled,
    is_default: image.isDefault,
    memory_mb: image.memoryMb,
    created_at: toIsoMillis(present(image.createdAt)),
    updated_at: toIsoMillis(present(image.updatedAt)),
    readiness_port: image.readinessPort ?? null,
    ttl_seconds: image.ttlSeconds ?? null,
    workspace_id: image.workspaceId || null,
    registry_id: image.registryId || null,
    registry_name: image.registryName || null,
  };
}

export function toRegistry(registry: Registry): Static<typeof schemas.Registry> {
  return {
    id: registry.id,
    name: registry.name,
    url: registry.url,
    username: registry.username,
    workspace_id: registry.workspaceId,
    created_at: toIsoMillis(present(registry.createdAt)),
    updated_at: toIsoMillis(present(registry.updatedAt)),
  };
}

export function toSandbox(sandbox: Sandbox): Static<typeof schemas.Sandbox> {
  return {
    id: sandbox.id,
    name: sandbox.name,
    workspace_id: sandbox.workspaceId,
    image_id: sandbox.imageId,
    image: sandbox.image,
    image_digest: sandbox.imageDigest || null,
    state: present(schemas.sandboxStates.find((name) => states[name] === sandbox.state)),
    state_reason: sandbox.stateReason || null,
    message: sandbox.message || null,
    exit_code: sandbox.exitCode ?? null,
    labels: sandbox.labels,
    memory_mb: sandbox.memoryMb,
    readiness_port: sandbox.readinessPort ?? null,
    ttl_seconds: sandbox.ttlSeconds ?? null,
    created_by: sandbox.createdBy,
    created_at: toIsoMillis(present(sandbox.createdAt)),
    updated_at: toIsoMillis(present(sandbox.updatedAt)),
    ready_at: toIsoMillisOrNull(sandbox.readyAt),
    expires_at: toIsoMillisOrNull(sandbox.expiresAt),
    stopped_at: toIsoMillisOrNull(sandbox.stoppedAt),
    timeline: sandbox.timeline.map(({ phase, at }) => ({ phase, at: toIsoMillis(present(at)) })),
  };
}

export function toLogEntry(entry: LogEntry): Static<typeof schemas.LogEntry> {
  return {
    timestamp: toIsoMicros(present(entry.timestamp)),
    stream: entry.stream === LogStream.STDERR ? "stderr" : "stdout",
    log: entry.log,
  };
}

export function toMetricPoint(point: MetricPoint): Static<typeof schemas.MetricPoint> {
  return {
    timestamp: toIsoMillis(present(point.timestamp)),
    cpu_usage: point.cpuUsage,
    memory_usage: point.memoryUsage,
  };
}
