import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { expect } from "vitest";
import type { Quotas } from "../domain/quota.ts";
import { acceptSandbox, fail, type Sandbox } from "../domain/sandbox.ts";
import { sandboxProvisioned } from "../events.ts";
import type { SandboxStore } from "./store.ts";

const noQuota = { maxSandboxes: 0, maxMemoryMb: 0 };
export const unlimited: Quotas = {
  workspace: noQuota,
  user: noQuota,
  installation: noQuota,
  maxRecordBytes: 0,
  maxFailuresPerHour: 0,
};
/** Of a create that no quota limits and that causes no event. */
export const withoutQuotas = { quotas: unlimited, events: [] };

const call = { requestId: "r1", service: "facade", signal: new AbortController().signal, timeoutMs: () => undefined };
let clock = Date.UTC(2026, 0, 1);

/** The time of the sandbox that was made last. */
export const now = () => new Date(clock);

/** An accepted sandbox, each a second younger than the one before. */
export function sandboxOf(o: {
  workspaceId: string;
  name?: string;
  labels?: Record<string, string>;
  memoryMb?: number;
  createdBy?: string;
}): Sandbox {
  clock += 1000;
  const id = newId();
  return acceptSandbox({
    id,
    name: o.name ?? `n-${id}`,
    workspaceId: o.workspaceId,
    image: {
      imageId: "i1",
      reference: "registry.example/app:1",
      registryId: "",
      isDefault: false,
      memoryMb: o.memoryMb ?? 256,
    },
    labels: o.labels ?? {},
    createdBy: o.createdBy ?? "u1",
    now: now(),
  });
}

/** Stores a sandbox with its event. */
export async function createSandbox(store: SandboxStore, sandbox: Sandbox, quotas?: Partial<Quotas>): Promise<Sandbox> {
  const events = [sandboxProvisioned(call, sandbox)];
  await store.sandboxes.create(sandbox, { quotas: { ...unlimited, ...quotas }, events });
  return sandbox;
}

export async function endSandbox(store: SandboxStore, sandbox: Sandbox): Promise<Sandbox> {
  const failed = fail(sandbox, { reason: "exited", message: "over", exitCode: 1 }, now());
  expect(await store.sandboxes.update(failed, [])).toBe(true);
  return failed;
}

export async function reasonOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return error instanceof DomainError ? error.reason : `no DomainError: ${String(error)}`;
}
