import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FailureReason } from "../domain/sandbox.ts";

// The port to what runs sandboxes. Nothing of Docker or Kubernetes shows here: an adapter names its objects after the
// sandbox, labels them with the installation it was opened for, and reports what it sees; every rule about states and times
// is the service's.
//
// Errors are DomainErrors. Any method may throw RUNTIME_UNAVAILABLE: the engine can't be reached, did not answer in time
// or failed itself; the same call may succeed later. The other reasons are documented on the methods that throw them.

/** What a sandbox is to run as: everything that an adapter needs, so that `ensure` can be repeated after a crash. */
export interface RuntimeSpec {
  sandboxId: string;
  workspaceId: string;
  /** `host/name@sha256:…` as it was pulled, or an image id on the engine as `findLocalImage` gave it. */
  reference: string;
  /** MiB, without swap. A container that uses more is killed. */
  memoryMb: number;
  /** Cores, fractions allowed. */
  cpus: number;
  /** Processes and threads at once, at most. */
  pids: number;
  /** The sandbox's time to live from its start, for runtimes that can enforce one; others ignore it. */
  ttlSeconds?: number;
  /** What will be probed, for runtimes that probe by themselves. */
  readinessPort?: number;
  /**
   * How the image is pulled, for runtimes that do so by themselves when they make the container. Unset: without a credential, and it
   * declares no volumes. Throws as image-registry's AuthorizePull does.
   */
  findAccess?(): Promise<ImageAccess>;
}

/** What a runtime has to know of an image that it pulls itself. */
export interface ImageAccess {
  /** The `host[:port]` that the credential belongs to. */
  registryHost: string;
  /** Empty for a pull without a credential. */
  username: string;
  password: string;
  /** Paths that the image declares as volumes. */
  volumes: readonly string[];
}

/** Why a sandbox did not start or had to end, with a message for its user. */
export interface RuntimeFailure {
  reason: FailureReason;
  message: string;
}

/** PROVISIONING_FAILED with the reason that the sandbox's record gets. */
export class SandboxRefused extends DomainError {
  readonly failure: RuntimeFailure;
  constructor({ reason, message }: RuntimeFailure, options: { cause?: unknown } = {}) {
    super("PROVISIONING_FAILED", message, options);
    this.failure = { reason, message };
  }
}

/** What the runtime reports about a sandbox's container; times are by the engine's clock. */
export interface Observation {
  sandboxId: string;
  workspaceId: string;
  /** `created`: not started. `exited`: its process has ended, for whatever reason; it never runs again. */
  phase: "created" | "running" | "exited";
  /** What keeps a created one from running. `isFinal`: it never will; otherwise it may pass. */
  problem?: RuntimeFailure & { isFinal: boolean };
  /** A running one's probe has succeeded, for runtimes that probe by themselves; others leave it out. */
  isReady?: boolean;
  /** Why one that has exited was ended, where that was neither its own doing nor a stop of ours. */
  failure?: RuntimeFailure;
  /** One that has exited was ended by the runtime because its time to live was over. */
  isExpired?: boolean;
  startedAt?: Date;
  /** Only once it has exited; 128 + n after signal n. */
  exitCode?: number;
  /** True when it was killed for using more than its memory limit. */
  outOfMemory?: boolean;
  createdAt: Date;
}

/** What a list says about a container. `createdAt` may be to the second. */
export type ListedSandbox = Pick<Observation, "sandboxId" | "workspaceId" | "phase" | "createdAt">;

/** Bytes that a sandbox has written. "limited": the storage keeps it to its limit. Undefined: it isn't running. */
export type DiskUse = number | "limited" | undefined;

export interface PullRequest {
  /** `host[:port]/name@sha256:…`. */
  pinnedReference: string;
  /** The `host[:port]` that the credential belongs to. */
  registryHost: string;
  /** Empty for a pull without a credential. */
  username: string;
  password: string;
  /** Aborting ends the pull at the engine too; `pull` then throws the signal's reason. */
  signal: AbortSignal;
}

export interface ImageOnEngine {
  /** As in `PulledImage.pinnedReference`. */
  id: string;
  /** `host/repository@digest`, for each place that it was pulled from. */
  names: readonly string[];
  /** With all its layers, also those that it shares with others. */
  sizeBytes: number;
  /** By a container, whatever its state and whosever it is. */
  isUsed: boolean;
}

export interface Runtime {
  /**
   * Checks that sandboxes can be run: the engine answers, and the isolation rules are in place; rules that are missing are
   * set. Throws ISOLATION_UNAVAILABLE with the reason when they can't be. Cheap enough to repeat every few seconds.
   */
  check(): Promise<void>;

  /**
   * Looks an image up on the engine itself, without asking a registry. Only for the references of operator-made default
   * images and pinned ones that were authorized: the engine's cache holds images of all tenants. Undefined too where each container's
   * image is asked for at its registry.
   */
  findLocalImage(reference: string): Promise<{ reference: string; digest: string } | undefined>;

  /**
   * Creates and starts the sandbox's container. One that exists is left as it is, and one that has exited is not started
   * again. Answers `created` while that takes its time: to be called again when `observe` tells of the sandbox, or some seconds later.
   * Throws PROVISIONING_FAILED (SandboxRefused where it has a reason of its own) with a message for the user when the engine refuses it (a
   * command that is not in the image), and ISOLATION_UNAVAILABLE as `check` does.
   */
  ensure(spec: RuntimeSpec): Promise<Observation>;

  /** Undefined when the installation has no container for this sandbox. */
  inspect(sandboxId: string): Promise<Observation | undefined>;

  /**
   * The readiness probe, once: true when `GET /` on the port answers 200 to 399 within 2 s (redirects are not followed).
   * Without a port, when an exec of `true` succeeds; an image without that program is ready once its process has run for a
   * second. False otherwise, also for a sandbox that is not running. Throws the signal's reason when it aborts.
   */
  probe(sandboxId: string, readinessPort: number | undefined, signal: AbortSignal): Promise<boolean>;

  /**
   * How much a running sandbox has on the disk besides its image. It takes the longer the more files there are, and throws
   * RUNTIME_UNAVAILABLE when it takes more than two minutes. Throws the signal's reason when it aborts.
   */
  measureDisk(sandboxId: string, signal: AbortSignal): Promise<DiskUse>;

  /**
   * Sends SIGTERM, and SIGKILL after `graceSeconds` (at once for 0), and resolves when the sandbox has ended. Nothing
   * happens to one that has ended or is gone.
   */
  stop(sandboxId: string, graceSeconds: number): Promise<void>;

  /** Removes the container with all that it wrote, running or not. Nothing happens when it is gone. */
  remove(sandboxId: string): Promise<void>;

  /**
   * All containers of this installation. The list is complete, or it throws. It costs one question, however many there are,
   * and no container's own trouble ends it.
   */
  list(): Promise<ListedSandbox[]>;

  /** The folder on this machine where containers and images are kept; undefined where it can't be seen from here. */
  findDataFolder(): Promise<string | undefined>;

  /**
   * Tells which sandbox's container changed (start, end, out of memory, removal, what keeps it from running, and readiness where the
   * runtime probes by itself); without an id, that any may have. Best
   * effort; repeated changes are merged. It reconnects by itself and then tells that any may have changed, or of each, and
   * it keeps the isolation rules in place while it runs. Ends, without an error, when the signal aborts.
   */
  observe(signal: AbortSignal): AsyncIterable<{ sandboxId: string | undefined }>;

  /** Ends its connections. Nothing may be called after that. */
  close(): Promise<void>;
}

/** The images of an engine that has one store of them, which this platform fills and trims. */
export interface ImageEngine {
  /**
   * Pulls an image onto the engine. This is no authorization: the registry may not be asked at all for a digest that the
   * engine has. Throws IMAGE_PULL_UNAUTHORIZED (the registry refused the credential), IMAGE_NOT_FOUND_IN_REGISTRY,
   * REGISTRY_UNREACHABLE (also when the registry fails or is overloaded; worth a retry) or PROVISIONING_FAILED (an image
   * that this engine can't run, such as one for another architecture).
   */
  pull(request: PullRequest): Promise<void>;

  /** All images of the engine that have a name, also those that it has for others. */
  listImages(): Promise<ImageOnEngine[]>;

  /**
   * Takes a name from an image; with its last one it goes. False: a container uses it, or the engine doesn't have that name.
   */
  removeImage(name: string): Promise<boolean>;
}
