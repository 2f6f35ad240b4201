// The state machine of a sandbox: its states, the transitions between them, and what each records. No I/O.
import { DomainError } from "@sandgate/kit/base/domain-error";
import { addMs } from "@sandgate/kit/base/time";
import { hasEngineHost, parseReference } from "@sandgate/registry-client/reference";

export const sandboxStates = ["provisioning", "ready", "stopping", "stopped", "failed"] as const;

export type SandboxState = (typeof sandboxStates)[number];

export const stopReasons = [
  "stopped_by_user",
  "stopped_by_operator",
  "ttl_expired",
  "idle",
  "workspace_deleted",
] as const;

export type StopReason = (typeof stopReasons)[number];

export const failureReasons = [
  "image_pull_unauthorized",
  "image_not_found_in_registry",
  "image_invalid",
  "image_pull_failed",
  "registry_unreachable",
  "pull_timeout",
  "provisioning_failed",
  "unschedulable",
  "node_error",
  "container_config_error",
  "start_failed",
  "isolation_unavailable",
  "runtime_unavailable",
  "out_of_memory",
  "disk_full",
  "readiness_timeout",
  "exited",
  "evicted",
  "preempted",
  "node_drained",
  "node_lost",
  "runtime_lost",
] as const;

export type FailureReason = (typeof failureReasons)[number];

/**
 * Failures that no image or request causes, but the host, the cluster or its operator. What an image or its registry
 * does wrong at a pull has reasons of its own.
 */
const faultsOfPlatform: ReadonlySet<FailureReason | StopReason> = new Set<FailureReason>([
  "image_pull_failed",
  "provisioning_failed",
  "unschedulable",
  "node_error",
  "isolation_unavailable",
  "runtime_unavailable",
  "evicted",
  "preempted",
  "node_drained",
  "node_lost",
  "runtime_lost",
]);

export type Phase = "accepted" | "image_pulled" | "created" | "started" | "ready" | "stopped";

export interface TimelineEntry {
  phase: Phase;
  at: Date;
}

/** What to run: the image as it was when the sandbox was accepted. */
export interface ImageSnapshot {
  imageId: string;
  /** Unset in records of earlier versions. */
  name?: string;
  /** host/repository:tag or host/repository@digest. */
  reference: string;
  /** Empty: pulled without a credential. */
  registryId: string;
  /** Whether an operator created it as a global default, which may exist on the engine alone. */
  isDefault: boolean;
  memoryMb: number;
  readinessPort?: number;
  ttlSeconds?: number;
}

/** Whether it is on the engine or nowhere: no registry is asked for it. */
export function isOnEngineAlone({ reference, isDefault }: Pick<ImageSnapshot, "reference" | "isDefault">): boolean {
  const parsed = parseReference(reference);
  return isDefault && parsed !== undefined && hasEngineHost(parsed);
}

/** How much of an image's layers has come from the registry. */
export interface PullProgress {
  downloadedBytes: number;
  totalBytes: number;
}

export interface Sandbox {
  id: string;
  /** Grows by one with every change; changes are compare-and-set on it. */
  version: number;
  name: string;
  workspaceId: string;
  image: ImageSnapshot;
  /**
   * The image's id on the engine, or `host/repository@digest` where the runtime pulls by itself. Set once it is pulled.
   */
  pinnedReference?: string;
  imageDigest?: string;
  state: SandboxState;
  stateReason?: StopReason | FailureReason;
  message?: string;
  exitCode?: number;
  labels: Record<string, string>;
  /** What runs instead of the image's entrypoint and command. */
  command?: readonly string[];
  /** Of the environment variables that it was given besides the image's, sorted. */
  envNames?: readonly string[];
  /** Seconds. Unset: the image's, which is the longest. */
  ttlSeconds?: number;
  /** Seconds without use after which it ends. */
  idleTimeoutSeconds?: number;
  createdBy: string;
  createdAt: Date;
  updatedAt: Date;
  startedAt?: Date;
  readyAt?: Date;
  expiresAt?: Date;
  stoppedAt?: Date;
  timeline: TimelineEntry[];
  /** What it counts for in the quota of records. Unset in records of earlier versions, which count for nothing. */
  recordBytes?: number;
  /** When it was used last, as far as that is recorded: the version stays. Unset: not since it was ready. */
  lastUsedAt?: Date;
  /** How far the pull of its image is: the version stays. */
  pull?: PullProgress;
  /** When its container was removed, or was known never to have been created. Unset: there may be a container. */
  cleanedAt?: Date;
}

const transitions: Record<SandboxState, readonly SandboxState[]> = {
  provisioning: ["ready", "stopping", "failed"],
  ready: ["stopping", "failed"],
  stopping: ["stopped", "failed"],
  stopped: [],
  failed: [],
};

/** A live sandbox reserves its name, which the stores enforce by a partial unique index. */
export function isLive(state: SandboxState): boolean {
  return state === "provisioning" || state === "ready";
}

export function hasEnded(state: SandboxState): boolean {
  return state === "stopped" || state === "failed";
}

/** What the user who provisions a sandbox decides about it. An empty name: one is generated. */
export type Requested = Pick<Sandbox, "name" | "labels" | "command" | "envNames" | "ttlSeconds" | "idleTimeoutSeconds">;

/** About what a record without labels takes in a database with its indexes. */
const plainRecordBytes = 2_048;
/** About what a label takes besides its text. */
const labelIndexBytes = 128;

function recordBytesOf({ labels, command = [], envNames = [] }: Requested): number {
  const ofIndexes = labelIndexBytes * Object.keys(labels).length;
  return plainRecordBytes + Buffer.byteLength(JSON.stringify([labels, command, envNames])) + ofIndexes;
}

export function acceptSandbox({
  now,
  ...given
}: Requested & Pick<Sandbox, "id" | "workspaceId" | "image" | "createdBy"> & { now: Date }): Sandbox {
  return {
    ...given,
    recordBytes: recordBytesOf(given),
    version: 1,
    state: "provisioning",
    createdAt: now,
    updatedAt: now,
    timeline: [{ phase: "accepted", at: now }],
  };
}

function change(sandbox: Sandbox, patch: Partial<Sandbox>, now: Date): Sandbox {
  return { ...sandbox, ...patch, version: sandbox.version + 1, updatedAt: now };
}

function enter(sandbox: Sandbox, state: SandboxState, patch: Partial<Sandbox>, now: Date): Sandbox {
  if (!transitions[sandbox.state].includes(state)) {
    throw new Error(`a sandbox can't go from ${sandbox.state} to ${state}`);
  }
  return change(sandbox, { ...patch, state }, now);
}

/**
 * Adds a phase unless the timeline has it, so a repeated step keeps its first time. A runtime's times may be cut to
 * seconds, or by another clock: a phase is never earlier than the one before it.
 */
function withPhase(timeline: readonly TimelineEntry[], phase: Phase, at: Date): TimelineEntry[] {
  if (timeline.some((entry) => entry.phase === phase)) return [...timeline];
  const before = timeline.at(-1)?.at ?? at;
  return [...timeline, { phase, at: at < before ? before : at }];
}

/** The image is on the engine, under a reference that will always mean this image. */
export function recordPulled(sandbox: Sandbox, image: { pinnedReference: string; digest: string }, now: Date): Sandbox {
  return change(
    sandbox,
    {
      pinnedReference: image.pinnedReference,
      imageDigest: image.digest,
      timeline: withPhase(sandbox.timeline, "image_pulled", now),
    },
    now,
  );
}

/** That it became ready counts as its first use. Undefined: it isn't ready. */
export function lastUseOf({ lastUsedAt, readyAt }: Pick<Sandbox, "lastUsedAt" | "readyAt">): Date | undefined {
  return lastUsedAt ?? readyAt;
}

/** From its start. Undefined: it has no end. */
export function ttlSecondsOf({ ttlSeconds, image }: Pick<Sandbox, "ttlSeconds" | "image">): number | undefined {
  return ttlSeconds ?? image.ttlSeconds;
}

/**
 * The container has run since `startedAt`, by the engine's clock, or since the phase before where that is later: an
 * engine's times may be cut to seconds. Its time to live counts from then and is set once.
 */
export function recordStarted(sandbox: Sandbox, o: { createdAt: Date; startedAt: Date }, now: Date): Sandbox {
  const timeline = withPhase(withPhase(sandbox.timeline, "created", o.createdAt), "started", o.startedAt);
  const startedAt = sandbox.startedAt ?? timeline.find(({ phase }) => phase === "started")?.at ?? o.startedAt;
  const ttl = ttlSecondsOf(sandbox);
  const expiresAt = sandbox.expiresAt ?? (ttl === undefined ? undefined : new Date(startedAt.getTime() + ttl * 1000));
  return change(sandbox, { startedAt, ...(expiresAt ? { expiresAt } : {}), timeline }, now);
}

/** @param start of a container that was ready when it was first seen running, so that both are one change */
export function becomeReady(sandbox: Sandbox, now: Date, start?: { createdAt: Date; startedAt: Date }): Sandbox {
  const started = start ? { ...recordStarted(sandbox, start, now), version: sandbox.version } : sandbox;
  return enter(started, "ready", { readyAt: now, timeline: withPhase(started.timeline, "ready", now) }, now);
}

export function beginStop(sandbox: Sandbox, reason: StopReason, now: Date): Sandbox {
  return enter(sandbox, "stopping", { stateReason: reason }, now);
}

export function completeStop(sandbox: Sandbox, o: { exitCode?: number }, now: Date): Sandbox {
  return enter(
    sandbox,
    "stopped",
    {
      stoppedAt: now,
      timeline: withPhase(sandbox.timeline, "stopped", now),
      ...(o.exitCode === undefined ? {} : { exitCode: o.exitCode }),
    },
    now,
  );
}

export function fail(
  sandbox: Sandbox,
  o: { reason: FailureReason; message: string; exitCode?: number },
  now: Date,
): Sandbox {
  return enter(
    sandbox,
    "failed",
    {
      stateReason: o.reason,
      message: o.message,
      stoppedAt: now,
      timeline: withPhase(sandbox.timeline, "stopped", now),
      ...(o.exitCode === undefined ? {} : { exitCode: o.exitCode }),
    },
    now,
  );
}

/** Whether it failed, and the platform is at fault. */
export function isPlatformsFault({ state, stateReason }: Sandbox): boolean {
  return state === "failed" && stateReason !== undefined && faultsOfPlatform.has(stateReason);
}

/** Whether an attempt to run something has failed, which was not the platform's fault. */
export function isFailedAttempt(sandbox: Sandbox): boolean {
  return sandbox.state === "failed" && sandbox.readyAt === undefined && !isPlatformsFault(sandbox);
}

/** True once its time to live is over. */
export function hasExpired(sandbox: Pick<Sandbox, "expiresAt">, now: Date): boolean {
  return sandbox.expiresAt !== undefined && sandbox.expiresAt <= now;
}

/** A use is recorded up to so much later. */
const recordingMs = 6_000;

/** When a ready sandbox is to be ended, and why, unless it is used or extended before. Undefined: it has no end. */
export function endOf(
  sandbox: Pick<Sandbox, "expiresAt" | "idleTimeoutSeconds" | "lastUsedAt" | "readyAt">,
): { at: Date; reason: "ttl_expired" | "idle" } | undefined {
  const { expiresAt, idleTimeoutSeconds } = sandbox;
  const usedAt = lastUseOf(sandbox);
  const idleAt = usedAt && idleTimeoutSeconds && addMs(usedAt, idleTimeoutSeconds * 1000 + recordingMs);
  if (idleAt && (!expiresAt || idleAt < expiresAt)) return { at: idleAt, reason: "idle" };
  return expiresAt && { at: expiresAt, reason: "ttl_expired" };
}

/**
 * A ready sandbox ends so long from now; not earlier than before, unless it may be shortened. Throws CONFLICT for an
 * end after the image's limit.
 */
export function extend(sandbox: Sandbox, o: { ttlSeconds: number; shorten: boolean }, now: Date): Sandbox {
  const { expiresAt, startedAt, image } = sandbox;
  const wanted = addMs(now, o.ttlSeconds * 1000);
  const last = startedAt && image.ttlSeconds !== undefined ? addMs(startedAt, image.ttlSeconds * 1000) : undefined;
  if (last && wanted > last) {
    throw new DomainError("CONFLICT", "The sandbox can't be extended beyond its image's time to live.", {
      errno: "ERANGE",
      hint: `The image's ttl_seconds of ${image.ttlSeconds}, counted from the start, ends at ${last.toISOString()}.`,
    });
  }
  if (!o.shorten && (expiresAt === undefined || wanted <= expiresAt)) return sandbox;
  return change(sandbox, { expiresAt: wanted }, now);
}

/** Why a stopping sandbox is being stopped. */
export function stopReasonOf({ stateReason }: Sandbox): StopReason {
  return stopReasons.find((reason) => reason === stateReason) ?? "stopped_by_user";
}

/** Seconds between SIGTERM and SIGKILL. Only a stop that somebody requested gives the sandbox time to end by itself. */
export function graceSeconds(reason: StopReason): number {
  return reason === "stopped_by_user" || reason === "stopped_by_operator" ? 10 : 0;
}
