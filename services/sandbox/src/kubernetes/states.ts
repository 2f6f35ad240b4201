// What a pod's state means for its sandbox. No I/O.

import type { Observation, RuntimeFailure } from "../reconcile/runtime.ts";
import type { Pod } from "./pod.ts";

/** After the time at which a pod should have ended, how long its node may take to say so. */
const overdueMs = 15_000;
/** Clocks of a node and of the control plane that differ by more are told apart from a slow kubelet. */
const skewMs = 5_000;

/** A reason why a container was never started, although the kubelet calls it ended. */
const neverStarted = new Set(["StartError", "ContainerCannotRun"]);

/** What the adapter says of a pod. Undefined for one that is being removed. */
export function observationOf(pod: Pod, now: Date): Observation | undefined {
  if (isGone(pod)) return undefined;
  const { sandboxId, workspaceId, createdAt, container } = pod;
  const startedAt = startOf(pod, now);
  const base = { sandboxId, workspaceId, createdAt, ...(startedAt && { startedAt }) };
  if (!hasEnded(pod, now)) {
    const problem = problemOf(pod);
    if (startedAt && !container?.waiting) return { ...base, phase: "running" };
    return { ...base, phase: "created", ...(problem && { problem }) };
  }
  const failure = endOf(pod, now);
  const refusal = startFailureOf(pod);
  if (refusal && !failure) return { ...base, phase: "created", problem: { ...refusal, isFinal: true } };
  const { terminated } = container ?? {};
  return {
    ...base,
    phase: "exited",
    ...(startedAt && terminated && { exitCode: terminated.exitCode }),
    // The kernel kills one process; the reason is the same when another than the first was killed.
    outOfMemory: terminated?.reason === "OOMKilled" && terminated.exitCode === 137,
    ...(failure && { failure }),
    ...(pod.reason === "DeadlineExceeded" && { isExpired: true }),
  };
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
 * When its container started, by the control plane's clock: the node's own may be off by minutes, which shows in when it took the pod
 * up. Undefined: it never did.
 */
function startOf({ container, scheduledAt, acceptedAt, createdAt }: Pod, now: Date): Date | undefined {
  const startedAt = container?.startedAt;
  if (!startedAt || (container.terminated && neverStarted.has(container.terminated.reason))) return undefined;
  const offMs = scheduledAt && acceptedAt ? acceptedAt.getTime() - scheduledAt.getTime() : 0;
  const byControlPlane = startedAt.getTime() - (Math.abs(offMs) > skewMs ? offMs : 0);
  return new Date(Math.max(createdAt.getTime(), Math.min(byControlPlane, now.getTime())));
}

/** How the cluster ended it, if it was not its own doing. */
function endOf(pod: Pod, now: Date): RuntimeFailure | undefined {
  const { reason, message, disruption, container } = pod;
  const said = disruption?.message || message;
  const tell = (text: string) => (said ? `${text}: ${said}` : `${text}.`);
  if (reason === "Evicted" || disruption?.reason === "TerminationByKubelet") {
    return /ephemeral local storage usage|usage of EmptyDir/i.test(message)
      ? { reason: "disk_full", message: tell("The sandbox wrote more to its disk than it may") }
      : { reason: "evicted", message: tell("The node was short of something and evicted the sandbox") };
  }
  switch (disruption?.reason) {
    case "PreemptionByScheduler":
      return { reason: "preempted", message: tell("The sandbox had to make room for a pod of higher priority") };
    case "EvictionByEvictionAPI":
      return { reason: "node_drained", message: tell("The sandbox's node was drained") };
    case "DeletionByTaintManager":
    case "DeletionByPodGC":
      return { reason: "node_lost", message: tell("The sandbox's node no longer answers") };
  }
  if (reason === "NodeLost") return { reason: "node_lost", message: tell("The sandbox's node no longer answers") };
  if (reason === "Terminated" || reason === "NodeShutdown") {
    return { reason: "node_drained", message: tell("The sandbox's node was shut down") };
  }
  if (/^(NodeAffinity|OutOf\w+|UnexpectedAdmissionError|Preempting|TopologyAffinityError)$/.test(reason)) {
    return { reason: "unschedulable", message: tell("The node refused the sandbox") };
  }
  if (pod.deletionAt) {
    const isOverdue =
      !container?.terminated && pod.phase !== "Failed" && pod.phase !== "Succeeded" && pod.nodeName !== undefined;
    return isOverdue && now.getTime() > pod.deletionAt.getTime()
      ? { reason: "node_lost", message: "The sandbox's node did not end it when it should have." }
      : { reason: "runtime_lost", message: "The sandbox's pod was deleted." };
  }
  return undefined;
}

/** Why a container that was made could not be started. */
function startFailureOf({ container }: Pod): RuntimeFailure | undefined {
  const { terminated } = container ?? {};
  if (!terminated || !neverStarted.has(terminated.reason)) return undefined;
  return {
    reason: "start_failed",
    message: `The container could not be started: ${withoutLayers(terminated.message)}`,
  };
}

/** What keeps a pod from running. */
function problemOf({ unschedulable, nodeName, container }: Pod): Observation["problem"] {
  if (nodeName === undefined) {
    return unschedulable === undefined
      ? undefined
      : { reason: "unschedulable", message: `No node can take the sandbox: ${unschedulable}`, isFinal: false };
  }
  const { reason, message } = container?.waiting ?? { reason: "", message: "" };
  switch (reason) {
    case "ErrImagePull":
    case "ImagePullBackOff":
    case "RegistryUnavailable":
      return pullProblemOf(message);
    case "InvalidImageName":
    case "ImageInspectError":
    case "ErrImageNeverPull":
    case "SignatureValidationFailed":
      return { reason: "image_invalid", message: `The image can't be used: ${message}`, isFinal: true };
    case "CreateContainerConfigError":
      return {
        reason: "container_config_error",
        message: `The container can't be set up: ${message}`,
        // The kubelet's own caches may be late.
        isFinal: !/timed out|failed to sync/i.test(message),
      };
    case "CreateContainerError":
    case "RunContainerError":
      return {
        reason: "start_failed",
        message: `The container could not be started: ${withoutLayers(message)}`,
        isFinal:
          /no command specified|unable to find (user|group)|no matching entries|executable file not found|no such file/i.test(
            message,
          ),
      };
    default:
      return undefined;
  }
}

/** The kubelet passes containerd's errors on as text alone. */
export function pullProblemOf(message: string): NonNullable<Observation["problem"]> {
  const cause = message.replace(/^Back-off pulling image "[^"]*": (ErrImagePull: )?/, "");
  const say = (text: string) => `${text}: ${cause}`;
  if (
    /unauthorized|authentication required|no basic auth|authorization failed|insufficient_scope|denied|\b40[13]\b/i.test(
      cause,
    )
  ) {
    return { reason: "image_pull_unauthorized", message: say("The registry refused the credential"), isFinal: true };
  }
  if (
    /no match for platform|no matching manifest|unsupported|mediatype|invalid reference|unexpected end of JSON/i.test(
      cause,
    )
  ) {
    return { reason: "image_invalid", message: say("The image can't be used"), isFinal: true };
  }
  if (/no space left|disk quota|input\/output error/i.test(cause)) {
    return { reason: "image_pull_failed", message: say("The node can't store the image"), isFinal: false };
  }
  if (
    /dial tcp|connection re(fused|set)|no such host|timeout|deadline exceeded|tls:|x509|\bEOF\b|HTTP response to HTTPS|too many requests|\b(429|5\d\d)\b|server misbehaving|unreachable/i.test(
      cause,
    )
  ) {
    return { reason: "registry_unreachable", message: say("The node can't reach the registry"), isFinal: false };
  }
  if (/not found|manifest unknown|name unknown|\b404\b/i.test(cause)) {
    return {
      reason: "image_not_found_in_registry",
      message: say("The registry does not have the image"),
      isFinal: true,
    };
  }
  return { reason: "image_pull_failed", message: say("The image could not be pulled"), isFinal: false };
}

/** A message of containerd or runc without the layers that it came through. */
function withoutLayers(message: string): string {
  return message
    .replace(/^.*(unable to start container process|container init|create failed): /s, "")
    .replace(/: unknown$/, "");
}
