// What the sandbox service asks of a container engine. Nothing of Docker or Kubernetes shows here: an adapter names its
// objects after the sandbox, labels them, and says what it sees; every rule about states and times stays in the service.
//
// Errors are DomainErrors. Any method may throw RUNTIME_UNAVAILABLE: the engine can't be reached, did not answer in time
// or failed itself; the same call may succeed later. The other reasons stand on the methods that throw them.

/** What one sandbox is to run as. Everything an engine needs to make it, so that `ensure` can be repeated after a crash. */
export interface RuntimeSpec {
  sandboxId: string;
  workspaceId: string;
  /** `host/name@sha256:…` as it was pulled, or an image id on the engine as `findLocalImage` gave it. */
  reference: string;
  /** MiB, without swap. What goes over it is killed. */
  memoryMb: number;
  /** Cores, fractions allowed. */
  cpus: number;
  /** Most processes and threads at once. */
  pids: number;
  /** The sandbox's time limit from its start, for engines that hold one of their own; others ignore it. */
  ttlSeconds?: number;
}

/** What the engine says about one sandbox's object; times are the engine's own. */
export interface Observation {
  sandboxId: string;
  workspaceId: string;
  /** `created`: made but never started. `exited`: its process has ended, whatever the cause. It never runs again. */
  phase: "created" | "running" | "exited";
  startedAt?: Date;
  /** Only when exited; 128 + n after signal n. */
  exitCode?: number;
  /** True when it ended because it went over its memory limit. */
  outOfMemory?: boolean;
  createdAt: Date;
}

export interface PullRequest {
  /** `host[:port]/name@sha256:…`. */
  pinnedReference: string;
  /** The `host[:port]` that the credential belongs to. */
  registryHost: string;
  /** Empty: without a credential. */
  username: string;
  password: string;
  /** Aborting ends the pull at the engine too; `pull` then throws the signal's reason. */
  signal: AbortSignal;
}

export interface Runtime {
  /**
   * Says whether sandboxes can be made: the engine answers, and the isolation rules are in place, which it sets when they
   * are not. Throws ISOLATION_UNAVAILABLE with the reason when they can't be set. Cheap enough to repeat every few seconds.
   */
  check(): Promise<void>;

  /**
   * Looks an image up on the engine itself, without any registry. For operator-made default images only: the engine's
   * cache holds images of all tenants, so nothing a tenant names may be looked up here.
   */
  findLocalImage(reference: string): Promise<{ reference: string; digest: string } | undefined>;

  /**
   * Brings an image onto the engine. It authorizes nothing: for a digest that the engine has, it may not ask the registry
   * at all. Throws IMAGE_PULL_UNAUTHORIZED (the registry refused the credential),
   * IMAGE_NOT_FOUND_IN_REGISTRY, REGISTRY_UNREACHABLE (also: it failed or is overloaded; worth a retry) or
   * PROVISIONING_FAILED (an image this engine can't run, such as one for another architecture).
   */
  pull(request: PullRequest): Promise<void>;

  /**
   * Makes and starts the sandbox's container; what is there already is left as it is, and one that has exited is not
   * started again. Throws PROVISIONING_FAILED with a message fit for the user when the engine refuses it (a command that
   * is not in the image), and ISOLATION_UNAVAILABLE as `check` does.
   */
  ensure(spec: RuntimeSpec): Promise<Observation>;

  /** Undefined when the engine has no such object of this installation. */
  inspect(sandboxId: string): Promise<Observation | undefined>;

  /**
   * One look at whether a running sandbox is ready: `GET /` on the port answers 200 to 399 within 2 s (redirects are
   * not followed); without a port, an exec of `true` succeeds, and an image without that program counts as ready once its
   * process has run for a second. False for all else, also for a sandbox that is not running. Throws the signal's reason.
   */
  probe(sandboxId: string, readinessPort: number | undefined, signal: AbortSignal): Promise<boolean>;

  /**
   * Sends SIGTERM, after `graceSeconds` SIGKILL, and resolves when the sandbox has ended; 0 is SIGKILL at once. One that
   * has ended, or is gone, is fine.
   */
  stop(sandboxId: string, graceSeconds: number): Promise<void>;

  /** Removes the object with all it wrote, running or not; one that is gone is fine. */
  remove(sandboxId: string): Promise<void>;

  /** Every object of this installation: complete, or it throws. */
  list(): Promise<Observation[]>;

  /**
   * Wake-ups: something changed for this sandbox (start, end, out of memory, removal). Best effort; repeated ones are
   * merged. It reconnects by itself and then wakes every sandbox that the engine has, and keeps the isolation rules in
   * place while it runs. Ends, without an error, when the signal aborts.
   */
  observe(signal: AbortSignal): AsyncIterable<{ sandboxId: string }>;
}
