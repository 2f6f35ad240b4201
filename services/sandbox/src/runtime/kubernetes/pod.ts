// A pod as the API server has it, cut down to what the adapter reads: thousands of them are kept.

import { identityOf } from "@sandgate/container-labels";
import { containerName, helperContainerName, type RawPod } from "@sandgate/kubernetes-api/raw-pod";

/** Keeps an ended pod's object until the platform has read how it ended; the platform takes it off in `remove`. */
export const finalizer = "sandgate.io/sandbox";
/** Holds a new pod back from the scheduler until the Secret of its pull is there. */
export const pullGate = "sandgate.io/pull-secret";
/** On a pod whose container runs: its Secret is gone and its deadline is its time to live. */
export const settledAnnotation = "sandgate.io/settled";

export interface ContainerState {
  /**
   * When the kubelet started it, whether or not it has ended since. Missing for a container that could not be started.
   */
  startedAt?: Date;
  waiting?: { reason: string; message: string };
  terminated?: { exitCode: number; reason: string; message: string; finishedAt?: Date };
  /** Its startup probe has succeeded. */
  isStarted: boolean;
}

export interface Pod {
  name: string;
  namespace: string;
  uid: string;
  /** Grows with each change. */
  version: bigint;
  sandboxId: string;
  createdAt: Date;
  /** When the pod should have ended, once its deletion was requested. */
  deletionAt?: Date;
  deletionAskedAt?: Date;
  /** It has our finalizer. */
  isHeld: boolean;
  isGated: boolean;
  hasPullSecret: boolean;
  isSettled: boolean;
  nodeName?: string;
  deadlineSeconds?: number;
  readinessPort?: number;
  phase: string;
  /** Of the pod as a whole, such as `Evicted`. */
  reason: string;
  message: string;
  /** When the scheduler gave it a node, by the control plane's clock. */
  scheduledAt?: Date;
  /** When its node accepted it, by the node's clock. */
  acceptedAt?: Date;
  /** How far its node's clock is certainly ahead of the control plane's, in milliseconds; 0 if that isn't certain. */
  nodeAheadMs: number;
  /** Whether its node has set up its network and volumes; undefined: the kubelet hasn't reported that. */
  isSetUp?: boolean;
  /** Why the scheduler finds no node. */
  unschedulable?: string;
  /** Why the cluster ended it (condition DisruptionTarget). */
  disruption?: { reason: string; message: string };
  container?: ContainerState;
  /** It has a container that brings the helper, which hasn't done so yet. */
  awaitsHelper: boolean;
  /** What keeps that container from running, or why it failed. `isFinal`: it won't run again. */
  helperProblem?: { message: string; isFinal: boolean };
}

/** A smaller difference of clocks doesn't show: times are cut to seconds. */
const skewMs = 5_000;

/** Reads a pod. Undefined for one that is no sandbox's of this installation. */
export function readPod(raw: RawPod, installationId: string): Pod | undefined {
  const { metadata, spec, status } = raw;
  const identity = identityOf(metadata.labels ?? {});
  if (identity?.installationId !== installationId) return undefined;
  const conditions = status?.conditions ?? [];
  const scheduled = conditions.find(({ type }) => type === "PodScheduled");
  const setUp = conditions.find(({ type }) => type === "PodReadyToStartContainers");
  const disruption = conditions.find((each) => each.type === "DisruptionTarget" && each.status === "True");
  const port = spec.containers.find(({ name }) => name === containerName)?.startupProbe?.httpGet?.port;
  const container = readContainer(raw);
  const helper = readHelper(raw);
  return {
    name: metadata.name,
    namespace: metadata.namespace,
    uid: metadata.uid,
    version: BigInt(metadata.resourceVersion),
    sandboxId: identity.sandboxId,
    createdAt: new Date(metadata.creationTimestamp),
    ...readDeletion(metadata),
    isHeld: metadata.finalizers?.includes(finalizer) ?? false,
    isGated: spec.schedulingGates?.some(({ name }) => name === pullGate) ?? false,
    hasPullSecret: (spec.imagePullSecrets?.length ?? 0) > 0,
    isSettled: metadata.annotations?.[settledAnnotation] !== undefined,
    ...(spec.nodeName !== undefined && { nodeName: spec.nodeName }),
    ...(spec.activeDeadlineSeconds !== undefined && { deadlineSeconds: spec.activeDeadlineSeconds }),
    ...(port !== undefined && { readinessPort: port }),
    phase: status?.phase ?? "Pending",
    reason: status?.reason ?? "",
    message: status?.message ?? "",
    ...(scheduled?.status === "True" &&
      scheduled.lastTransitionTime !== undefined && { scheduledAt: new Date(scheduled.lastTransitionTime) }),
    ...(status?.startTime !== undefined && { acceptedAt: new Date(status.startTime) }),
    nodeAheadMs: readNodeAhead(raw),
    ...(setUp && { isSetUp: setUp.status === "True" }),
    ...(scheduled?.reason === "Unschedulable" && { unschedulable: scheduled.message ?? "" }),
    ...(disruption && { disruption: { reason: disruption.reason ?? "", message: disruption.message ?? "" } }),
    ...(container && { container }),
    ...helper,
  };
}

/** Of the reasons to wait, these are those of a container that is on its way. */
const isOnItsWay = new Set(["PodInitializing", "ContainerCreating"]);

function readHelper(raw: RawPod): Pick<Pod, "awaitsHelper" | "helperProblem"> {
  if (!raw.spec.containers.some(({ name }) => name === helperContainerName)) return { awaitsHelper: false };
  const { waiting, terminated } = findContainer(raw, helperContainerName)?.state ?? {};
  if (terminated?.exitCode === 0) return { awaitsHelper: false };
  const { reason = "", message = "" } = terminated ?? waiting ?? {};
  if (!terminated && (reason === "" || isOnItsWay.has(reason))) return { awaitsHelper: true };
  const said = `the container that brings the helper: ${reason} ${message}`.trim();
  return { awaitsHelper: true, helperProblem: { message: said, isFinal: terminated !== undefined } };
}

function readDeletion({ deletionTimestamp, deletionGracePeriodSeconds = 0 }: RawPod["metadata"]): Partial<Pod> {
  if (deletionTimestamp === undefined) return {};
  const deletionAt = new Date(deletionTimestamp);
  return { deletionAt, deletionAskedAt: new Date(deletionAt.getTime() - deletionGracePeriodSeconds * 1000) };
}

function findContainer({ status }: RawPod, wanted = containerName) {
  return status?.containerStatuses?.find(({ name }) => name === wanted);
}

/**
 * A node accepts a pod after the scheduler assigned it, and reports times after they have passed. A contradiction shows
 * a clock that is off. A kubelet that accepts pods late, or reports late, contradicts nothing.
 */
function readNodeAhead(raw: RawPod): number {
  const { metadata, status } = raw;
  if (status?.startTime === undefined) return 0;
  const acceptedMs = Date.parse(status.startTime);
  const { running, terminated } = findContainer(raw)?.state ?? {};
  // Ready is the kubelet's until its node is lost.
  const controlPlanes = ["PodScheduled", "DisruptionTarget", "Ready"];
  const changes = status.conditions?.filter(({ type }) => !controlPlanes.includes(type)) ?? [];
  const reported = [running?.startedAt, terminated?.finishedAt, ...changes.map((each) => each.lastTransitionTime)];
  const lastReportedMs = Math.max(acceptedMs, ...reported.map((time) => parseTime(time)?.getTime() ?? 0));
  const report = metadata.managedFields?.find(({ fieldsV1 }) => fieldsV1?.["f:status"]?.["f:startTime"]);
  const aheadMs = report?.time === undefined ? 0 : lastReportedMs - Date.parse(report.time);
  if (aheadMs > skewMs) return aheadMs;
  const scheduledAt = status.conditions?.find((each) => each.type === "PodScheduled" && each.status === "True");
  const sinceScheduledMs = scheduledAt?.lastTransitionTime
    ? acceptedMs - Date.parse(scheduledAt.lastTransitionTime)
    : 0;
  return sinceScheduledMs < -skewMs ? sinceScheduledMs : 0;
}

function readContainer(raw: RawPod): ContainerState | undefined {
  const container = findContainer(raw);
  const { running, waiting, terminated } = container?.state ?? {};
  if (!container) return undefined;
  const startedAt = parseTime(running?.startedAt ?? terminated?.startedAt);
  const finishedAt = parseTime(terminated?.finishedAt);
  return {
    ...(startedAt && { startedAt }),
    ...(waiting && { waiting: { reason: waiting.reason ?? "", message: waiting.message ?? "" } }),
    ...(terminated && {
      terminated: {
        exitCode: terminated.exitCode,
        reason: terminated.reason ?? "",
        message: terminated.message ?? "",
        ...(finishedAt && { finishedAt }),
      },
    }),
    isStarted: container.started ?? false,
  };
}

/** A container that never ran has the year 1970, or null. */
function parseTime(text: string | null | undefined): Date | undefined {
  return text === undefined || text === null || text.startsWith("1970-") || text.startsWith("0001-")
    ? undefined
    : new Date(text);
}
