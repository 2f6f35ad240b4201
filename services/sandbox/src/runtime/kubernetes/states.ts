// What a pod's state means for its sandbox, without any I/O.

import type { Observation, RuntimeFailure } from "../lifecycle.ts";
import { startFailureOf } from "../start-failures.ts";
import type { Pod } from "./pod.ts";

/** How long a node may take to report a pod's end after the time at which the pod should have ended. */
const overdueMs = 15_000;
/** A deletion counts as the cause of an end unless the end came this much earlier: both times are cut to seconds. */
const deletionSlackMs = 5_000;

/** Reasons of containers that were never started, although the kubelet reports them as ended. */
const neverStarted = new Set(["StartError", "ContainerCannotRun"]);

/**
 * Nobody knows how the container ended: the kubelet's word for one that it doesn't find, and containerd's after a
 * restart of the node.
 */
const lostTrack = new Set(["ContainerStatusUnknown", "Unknown"]);

/** What the adapter reports about a pod. Undefined for a pod that is being removed. */
export function observationOf(pod: Pod, now: Date): Observation | undefined {
  if (isGone(pod)) return undefined;
  const { sandboxId, createdAt, container } = pod;
  const startedAt = startOf(pod, now);
  const base = { sandboxId, createdAt, ...(startedAt && { startedAt }) };
  if (!hasEnded(pod, now)) {
    if (startedAt && !container?.waiting) {
      // The kubelet starts it whether or not the helper is there.
      const problem = helperProblemOf(pod);
      const isReady = container?.isStarted && !pod.awaitsHelper;
      return { ...base, phase: "running", ...(isReady && { isReady }), ...(problem && { problem }) };
    }
    const problem = problemOf(pod);
    return { ...base, phase: "created", ...(problem && { problem }) };
  }
  const failure = endOf(pod, now);
  const { terminated } = container ?? {};
  if (terminated && neverStarted.has(terminated.reason) && !failure)
    return { ...base, phase: "created", problem: { ...startFailureOf(terminated.message), isFinal: true } };
  return {
    ...base,
    phase: "exited",
    ...(startedAt && terminated && !lostTrack.has(terminated.reason) && { exitCode: terminated.exitCode }),
    // The kernel kills one process; the reason is the same when another than the first was killed.
    outOfMemory: terminated?.reason === "OOMKilled" && terminated.exitCode === 137,
    ...(failure && { failure }),
    ...(pod.reason === "DeadlineExceeded" && startedAt && { isExpired: true }),
  };
}

/**
 * Whether a change is one of the sandbox, and not only a step of the control plane's on the way to a running container:
 * whoever created a pod knows of it, and nothing is to be done when it gets its node, network and volumes. Undefined:
 * there is no pod.
 */
export function isNews(before: Pod | undefined, after: Pod | undefined, now: Date): boolean {
  return after === undefined || newsOf(after, now) !== (before ? newsOf(before, now) : onItsWay);
}

const onItsWay = "created";

function newsOf(pod: Pod, now: Date): string {
  const seen = observationOf(pod, now);
  if (!seen) return "gone";
  const { phase, problem, isReady, failure } = seen;
  // That no scheduler has looked at it is found by asking from time to time.
  const isWaiting = phase === "created" && pod.nodeName === undefined && pod.unschedulable === undefined;
  if (phase === "created" && !pod.deletionAt && (isWaiting || !problem)) return onItsWay;
  return JSON.stringify([phase, problem, isReady, failure, pod.deletionAt !== undefined]);
}

/** Its deletion was asked for and we hold it no longer. */
export function isGone(pod: Pod): boolean {
  return pod.deletionAt !== undefined && !pod.isHeld;
}

/** Whether nothing of it runs any more, as far as anybody can know. */
export function hasEnded(pod: Pod, now: Date): boolean {
  if (pod.phase === "Succeeded" || pod.phase === "Failed" || pod.container?.terminated) return true;
  if (!pod.deletionAt) return false;
  // No kubelet has it, or none that answers.
  return pod.nodeName === undefined || now.getTime() > pod.deletionAt.getTime() + overdueMs;
}

/**
 * When its container started, by the control plane's clock: the node's own may be off by minutes. Undefined: it never
 * did.
 */
function startOf(pod: Pod, now: Date): Date | undefined {
  const { container, createdAt } = pod;
  const startedAt = container?.startedAt;
  if (!startedAt || (container.terminated && neverStarted.has(container.terminated.reason))) return undefined;
  const byControlPlane = startedAt.getTime() - pod.nodeAheadMs;
  return new Date(Math.max(createdAt.getTime(), Math.min(byControlPlane, now.getTime())));
}

/** Why a kubelet ended a pod, or did not take it: `status.reason`. */
const podReasons: Readonly<Record<string, (pod: Pod) => RuntimeFailure["reason"]>> = {
  Evicted: ({ message }) => evictionReason(message),
  Preempting: () => "preempted",
  // The node was being shut down: first for one that ran, then for one that came too late.
  Terminated: () => "node_drained",
  NodeShutdown: () => "node_drained",
  NodeLost: () => "node_lost",
};

/** Whether a node evicted a sandbox for want of a resource, or because the sandbox exceeded a limit of its own. */
function evictionReason(message: string): RuntimeFailure["reason"] {
  const isOwnLimit = /ephemeral local storage usage|local ephemeral storage limit|usage of EmptyDir/i;
  return isOwnLimit.test(message) ? "disk_full" : "evicted";
}

/** The failure that an eviction's event reports. */
export function evictionOf(message: string): RuntimeFailure {
  return failureOf(evictionReason(message), message);
}

/** Why the control plane took a pod away: the reason of its condition DisruptionTarget. */
const disruptions: Readonly<Record<string, RuntimeFailure["reason"]>> = {
  PreemptionByScheduler: "preempted",
  EvictionByEvictionAPI: "node_drained",
  DeletionByTaintManager: "node_lost",
  DeletionByPodGC: "node_lost",
};

const failureTexts: Partial<Record<RuntimeFailure["reason"], string>> = {
  disk_full: "The sandbox exceeded its disk limit.",
  preempted: "The sandbox was preempted by a pod of higher priority.",
  node_drained: "The sandbox's node was drained or shut down.",
  node_lost: "The sandbox's node no longer responds.",
  unschedulable: "The node refused the sandbox.",
};

/** What a node that evicts a sandbox says it was short of. */
const shortages: readonly Words[] = [
  [/resource: memory/i, "memory"],
  [/resource: inodes/i, "inodes, which are files and folders"],
  [/resource: ephemeral-storage/i, "disk"],
  [/resource: pids/i, "process ids"],
];

/** What a scheduler that finds no node says is missing. */
const missing: readonly Words[] = [
  [/insufficient memory/i, "No node has enough free memory for the sandbox."],
  [/insufficient cpu/i, "No node has enough free CPU for the sandbox."],
  [/insufficient ephemeral-storage/i, "No node has enough free disk for the sandbox."],
  [/too many pods/i, "No node has room for another pod."],
];

/** Words of ours for what others say. */
type Words = readonly [pattern: RegExp, text: string];

function wordsFor(said: string, words: readonly Words[], otherwise: string): string {
  return words.find(([pattern]) => pattern.test(said))?.[1] ?? otherwise;
}

/** How the cluster ended a pod, unless the sandbox ended by itself. */
function endOf(pod: Pod, now: Date): RuntimeFailure | undefined {
  const { disruption, container, phase } = pod;
  const byKubelet =
    podReasons[pod.reason]?.(pod) ?? (disruption?.reason === "TerminationByKubelet" ? "evicted" : undefined);
  const byControlPlane = disruption && !endedBeforeDeletion(pod) ? disruptions[disruption.reason] : undefined;
  const reason = byKubelet ?? byControlPlane;
  if (reason) return failureOf(reason, disruption?.message || pod.message);
  if (container?.terminated && lostTrack.has(container.terminated.reason)) {
    return {
      reason: "node_lost",
      message: "The sandbox's node was restarted, or its container runtime lost the sandbox.",
    };
  }
  const ranOrWas = container?.startedAt !== undefined || container?.terminated !== undefined;
  if (phase === "Failed" && pod.reason === "DeadlineExceeded" && !ranOrWas) {
    return { reason: "pull_timeout", message: "The container did not start before the pod's deadline." };
  }
  // Such as OutOfmemory, OutOfpods, NodeAffinity, UnexpectedAdmissionError: the kubelet knew better than the scheduler.
  if (phase === "Failed" && pod.reason !== "" && !ranOrWas)
    return failureOf("unschedulable", `${pod.reason}: ${pod.message}`);
  if (pod.deletionAt && !endedBeforeDeletion(pod)) {
    const isOverdue =
      !container?.terminated && phase !== "Failed" && phase !== "Succeeded" && pod.nodeName !== undefined;
    return isOverdue && now.getTime() > pod.deletionAt.getTime()
      ? { reason: "node_lost", message: "The sandbox's node did not stop it in time." }
      : { reason: "runtime_lost", message: "The sandbox's pod was deleted." };
  }
  return undefined;
}

function failureOf(reason: RuntimeFailure["reason"], said: string): RuntimeFailure {
  const evicted = `The node ran short of ${wordsFor(said, shortages, "a resource")} and evicted the sandbox.`;
  return { reason, message: failureTexts[reason] ?? evicted, ...(said !== "" && { detail: said }) };
}

/** Whether its container ended well before anybody asked for the pod's deletion, and so not because of it. */
function endedBeforeDeletion(pod: Pod): boolean {
  const finishedAt = pod.container?.terminated?.finishedAt;
  if (!finishedAt || !pod.deletionAskedAt) return false;
  return finishedAt.getTime() - pod.nodeAheadMs < pod.deletionAskedAt.getTime() - deletionSlackMs;
}

/** Of the platform's own image, and no fault of the sandbox's. */
function helperProblemOf({ helperProblem }: Pod): Observation["problem"] {
  if (!helperProblem) return undefined;
  const { message: detail, isFinal } = helperProblem;
  return { reason: "node_error", message: "The node can't get the platform's helper.", detail, isFinal };
}

/** What keeps a pod from running. */
function problemOf(pod: Pod): Observation["problem"] {
  const { unschedulable, isGated, nodeName, container } = pod;
  if (isGated) return undefined;
  if (nodeName === undefined) {
    const waits = "The cluster's scheduler has not considered the sandbox yet.";
    if (unschedulable === undefined) return { reason: "unschedulable", message: waits, isFinal: false };
    const message = wordsFor(unschedulable, missing, "No node can run the sandbox.");
    return { reason: "unschedulable", message, detail: unschedulable, isFinal: false };
  }
  const helperProblem = helperProblemOf(pod);
  if (helperProblem) return helperProblem;
  const { reason, message: detail } = container?.waiting ?? { reason: "", message: "" };
  switch (reason) {
    case "ErrImagePull":
    case "ImagePullBackOff":
      return pullProblemOf(detail);
    case "RegistryUnavailable":
      return { reason: "registry_unreachable", message: "The node can't reach the registry.", detail, isFinal: false };
    case "ImageInspectError":
      return { reason: "image_pull_failed", message: "The node can't inspect the image.", detail, isFinal: false };
    case "InvalidImageName":
    case "ErrImageNeverPull":
    case "SignatureValidationFailed":
      return { reason: "image_invalid", message: "The image can't be used.", detail, isFinal: true };
    case "CreateContainerConfigError":
      return configProblemOf(detail);
    case "CreateContainerError":
    case "RunContainerError":
    case "PreCreateHookError":
    case "PreStartHookError":
      return startFailureOf(detail);
    default:
      return undefined;
  }
}

/** A Secret that the kubelet doesn't find, in its own words or in the API server's. */
const missingSecret = /secrets? "[^"]+" not found/i;
/** The kubelet's own caches may be late, above all after its start. */
const lateCache = /timed out|failed to sync|not yet been read/i;

/** Why a kubelet can't configure a container: its image breaks a rule, unless the kubelet itself lacks something. */
function configProblemOf(detail: string): NonNullable<Observation["problem"]> {
  if (missingSecret.test(detail) || lateCache.test(detail)) return setupProblemOf(detail);
  const asRoot = /runAsNonRoot/i.test(detail) ? ": the cluster demands an image with a numeric user, not root" : "";
  return {
    reason: "container_config_error",
    message: `The container can't be set up${asRoot}.`,
    detail,
    isFinal: true,
  };
}

/** A node lacks what it needs for a sandbox, and may get it. */
export function setupProblemOf(detail: string): NonNullable<Observation["problem"]> {
  return { reason: "node_error", message: "The node can't set the sandbox up.", detail, isFinal: false };
}

/** Whether the pod's Secret may be missing. */
export function mayLackSecret({ hasPullSecret }: Pod, problem: NonNullable<Observation["problem"]>): boolean {
  if (problem.reason === "image_pull_unauthorized") return hasPullSecret;
  return problem.reason === "node_error" && missingSecret.test(problem.detail ?? "");
}

/**
 * What a pull's failure says it was, the first that fits. The kubelet passes on the text of containerd or CRI-O and
 * nothing else.
 */
const pullFailures: readonly (readonly [
  pattern: RegExp,
  reason: RuntimeFailure["reason"],
  text: string,
  isFinal: boolean,
])[] = [
  [
    /unauthorized|authentication required|no basic auth|authorization failed|insufficient_scope|(?<!permission )denied|\b40[13]\b/i,
    "image_pull_unauthorized",
    "The registry refused the credential.",
    true,
  ],
  [
    /no match for platform|no matching manifest|no image found in|unsupported|mediatype|invalid reference|unexpected end of JSON/i,
    "image_invalid",
    "The image can't be used.",
    true,
  ],
  [
    /no space left|disk quota|input\/output error|read-only file system/i,
    "image_pull_failed",
    "The node can't store the image.",
    false,
  ],
  [
    /dial tcp|connection re(fused|set)|no such host|timeout|deadline exceeded|tls:|x509|\bEOF\b|HTTP response to HTTPS|too ?many ?requests|\b(429|5\d\d)\b|server misbehaving|unreachable|no route to host/i,
    "registry_unreachable",
    "The node can't reach the registry.",
    false,
  ],
  [
    /not found|manifest unknown|(repository )?name (unknown|not known)|\b404\b/i,
    "image_not_found_in_registry",
    "The registry does not have the image.",
    true,
  ],
];

/** Why a pull failed. The names of the image and its registry don't count. */
export function pullProblemOf(message: string): NonNullable<Observation["problem"]> {
  const cause = message.replace(/^Back-off pulling image "[^"]*": (ErrImagePull: )?/, "");
  const anonymous = withoutNames(cause);
  const [, reason, text, isFinal] = pullFailures.find(([pattern]) => pattern.test(anonymous)) ?? [
    undefined,
    "image_pull_failed" as const,
    "The image could not be pulled.",
    false,
  ];
  return { reason, message: text, detail: cause, isFinal };
}

/** A pull's failure without references, addresses and hosts, which tenants choose. */
function withoutNames(cause: string): string {
  return cause
    .replace(/"[^"]*"/g, "")
    .replace(/https?:\/\/\S+/g, "")
    .replace(/\S+/g, (word) => word.replace(/^.*@sha256:\w+/, ""))
    .replace(/\breading manifest \S+ in \S+/g, "")
    .replace(/\blookup \S+/g, "")
    .replace(/\b\d+(\.\d+){3}(:\d+)?/g, "");
}
