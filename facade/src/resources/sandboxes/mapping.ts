import { type Sandbox, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import type { Static } from "typebox";
import { opaqueId, present } from "../../pipeline/contract.ts";
import { toIsoMillis, toIsoMillisOrNull } from "../../pipeline/times.ts";
import * as schemas from "./schemas.ts";

const states = {
  provisioning: SandboxState.PROVISIONING,
  ready: SandboxState.READY,
  stopping: SandboxState.STOPPING,
  stopped: SandboxState.STOPPED,
  failed: SandboxState.FAILED,
};

/** The states in a comma-separated list that matches its schema. */
export function fromStateNames(names: string | undefined): SandboxState[] {
  const wanted = new Set(names?.split(","));
  return schemas.sandboxStates.filter((name) => wanted.has(name)).map((name) => states[name]);
}

/** The id or name of a sandbox as the contract accepts it. */
export function sandboxIdOf(idOrName: string): string {
  return opaqueId(idOrName, "SANDBOX_NOT_FOUND", "There is no such sandbox.");
}

/**
 * The labels of a query. Each item has a colon, and the value may contain more of them. Undefined for two values of one label,
 * which no sandbox has.
 */
export function fromLabelPairs(labels: readonly string[] | undefined): Record<string, string> | undefined {
  const wanted = new Map<string, string>();
  for (const label of labels ?? []) {
    const colon = label.indexOf(":");
    const [key, value] = [label.slice(0, colon), label.slice(colon + 1)];
    if ((wanted.get(key) ?? value) !== value) return undefined;
    wanted.set(key, value);
  }
  return Object.fromEntries(wanted);
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
