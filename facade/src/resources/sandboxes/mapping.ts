import { ProvisionSandboxRequestSchema, SandboxSchema, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import { stateReasons } from "../../pipeline/errors/state-reasons.ts";
import { opaqueId, present } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import { createRequestMapper } from "../../pipeline/messages/request-mapper.ts";
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
 * The labels of a query. Each item has a colon, and the value may contain more of them. Undefined for two values of one
 * label, which no sandbox has.
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

export const fromProvisionBody = createRequestMapper(ProvisionSandboxRequestSchema, schemas.ProvisionBody);

export const toSandbox = createMapper(SandboxSchema, schemas.Sandbox, {
  hint: ({ state, stateReason }) => (state === SandboxState.FAILED ? (stateReasons[stateReason]?.hint ?? null) : null),
  command: ({ command }) => (command.length === 0 ? null : command),
  pull: ({ pull }) =>
    pull ? { downloaded_bytes: Number(pull.downloadedBytes), total_bytes: Number(pull.totalBytes) } : null,
  state: ({ state }) => present(schemas.sandboxStates.find((name) => states[name] === state)),
});
