import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FailureReason } from "../domain/sandbox.ts";
import type { ImageAccess } from "./images.ts";

// The port to the life of sandboxes. Nothing of Docker or Kubernetes shows here: an adapter names its objects after the
// sandbox, labels them with the installation it was opened for, and reports what it sees; every rule about states and
// times is the service's.
//
// Errors are DomainErrors. Any method may throw RUNTIME_UNAVAILABLE: the engine can't be reached, did not answer in
// time or failed itself; the same call may succeed later. The other reasons are documented on the methods that throw
// them.

/** What a sandbox is to run as: everything that an adapter needs, so that `ensure` can be repeated after a crash. */
export interface RuntimeSpec {
  sandboxId: string;
  workspaceId: string;
  /** As in `PinnedImage.pinnedReference`. */
  reference: string;
  /** Runs instead of the image's entrypoint and command. Unset: these. */
  command?: readonly string[];
  /** Finds the environment variables that it has besides the image's. Unset: it has none. */
  env?: { names: readonly string[]; find(): Promise<Readonly<Record<string, string>>> };
  /** MiB, without swap. A container that uses more is killed. */
  memoryMb: number;
  /** Cores, fractions allowed. */
  cpus: number;
  /** Processes and threads at once, at most. */
  pids: number;
  /**
   * The longest time to live from its start, for runtimes that can enforce one; others ignore it. The platform may end
   * the sandbox earlier.
   */
  ttlSeconds?: number;
  /** What will be probed, for runtimes that probe by themselves. */
  readinessPort?: number;
  /**
   * Finds how the image is pulled, for runtimes that pull by themselves when they make the container. Unset: without a
   * credential, and the image declares no volumes. Throws the errors of image-registry's AuthorizePull.
   */
  findAccess?(): Promise<ImageAccess>;
}

/** Why a sandbox did not start or had to end. */
export interface RuntimeFailure {
  reason: FailureReason;
  /** For its user, in words of ours alone. */
  message: string;
  /** What the runtime said, which may tell of hosts and their networks. For the operator's log alone. */
  detail?: string;
}

/** PROVISIONING_FAILED with the reason that the sandbox's record gets. */
export class SandboxRefused extends DomainError {
  readonly failure: RuntimeFailure;
  constructor({ reason, message, detail }: RuntimeFailure, options: { cause?: unknown } = {}) {
    super("PROVISIONING_FAILED", message, options);
    this.failure = { reason, message, ...(detail !== undefined && { detail }) };
  }
}

/**
 * What the runtime reports about a sandbox's container; times are by the engine's clock. Whose sandbox it is stands in
 * its record alone: a container's labels stay what they were at its creation.
 */
export interface Observation {
  sandboxId: string;
  /** `created`: not started. `exited`: its process has ended, for whatever reason; it never runs again. */
  phase: "created" | "running" | "exited";
  /**
   * What keeps a created container from running, or one that runs from being ready. `isFinal`: it always will; otherwise
   * the problem may pass.
   */
  problem?: RuntimeFailure & { isFinal: boolean };
  /** The probe of a running container has succeeded. Only runtimes that probe by themselves report it. */
  isReady?: boolean;
  /** Why a container was ended, where that was neither its own doing nor a stop of ours. Only once it has exited. */
  failure?: RuntimeFailure;
  /** The runtime ended the container because its time to live was over. Only once it has exited. */
  isExpired?: boolean;
  startedAt?: Date;
  /** Only once it has exited; 128 + n after signal n. */
  exitCode?: number;
  /** True when it was killed for using more than its memory limit. */
  outOfMemory?: boolean;
  createdAt: Date;
}

/** RUNTIME_UNAVAILABLE where a start failed for a cause that may pass; the failure is the sandbox's if it doesn't. */
export class StartFailed extends DomainError {
  readonly failure: RuntimeFailure;
  constructor(failure: RuntimeFailure, options: { cause?: unknown } = {}) {
    super("RUNTIME_UNAVAILABLE", failure.message, options);
    this.failure = failure;
  }
}

/** What a list says about a container. `createdAt` may be to the second. */
export type ListedSandbox = Pick<Observation, "sandboxId" | "phase" | "createdAt">;

/** The life of the sandboxes of one installation. */
export interface RuntimeLifecycle {
  /**
   * Checks that sandboxes can be run: the engine answers, and the isolation rules are in place; it sets rules that are
   * missing. Throws ISOLATION_UNAVAILABLE with the reason when it can't. Cheap enough to repeat every few seconds.
   */
  check(): Promise<void>;

  /**
   * Creates and starts the sandbox's container. It leaves an existing container as it is, and never starts one again
   * that has exited. It answers `created` while the start takes its time: call it again when `observe` reports the
   * sandbox, or some seconds later. Throws PROVISIONING_FAILED with a message for the user when the engine refuses the
   * container (a command that is not in the image), as SandboxRefused where there is a reason of its own; StartFailed
   * for a start that is worth another attempt; ISOLATION_UNAVAILABLE as `check` does.
   */
  ensure(spec: RuntimeSpec): Promise<Observation>;

  /** Undefined when the installation has no container for this sandbox. */
  inspect(sandboxId: string): Promise<Observation | undefined>;

  /**
   * Runs the readiness probe once: true when `GET /` on the port answers 200 to 399 within 2 s (redirects are not
   * followed, except by a kubelet within the same host). Without a port, when an exec of `true` succeeds; an image
   * without that program is ready once its process has run for a second. False otherwise, also for a sandbox that is
   * not running. Throws the signal's reason when it aborts.
   */
  probe(sandboxId: string, readinessPort: number | undefined, signal: AbortSignal): Promise<boolean>;

  /**
   * Sends SIGTERM, and SIGKILL after `graceSeconds` (at once for 0), and resolves when the sandbox has ended. Nothing
   * happens to a sandbox that has ended or is gone.
   */
  stop(sandboxId: string, graceSeconds: number): Promise<void>;

  /** Removes the container with all that it wrote, running or not. Nothing happens when it is gone. */
  remove(sandboxId: string): Promise<void>;

  /**
   * Lists all containers of this installation. The list is complete, or it throws. It costs one question, however many
   * containers there are, and no container's own trouble ends it.
   */
  list(): Promise<ListedSandbox[]>;

  /**
   * Reports which sandbox's container changed: its start, end, lack of memory, removal, what keeps it from running, and
   * its readiness where the runtime probes by itself. Without an id, any container may have changed. Best effort;
   * repeated changes are merged. It reconnects by itself, then reports that any may have changed, or each of them, and
   * it keeps the isolation rules in place while it runs. Ends, without an error, when the signal aborts.
   */
  observe(signal: AbortSignal): AsyncIterable<{ sandboxId: string | undefined }>;
}
