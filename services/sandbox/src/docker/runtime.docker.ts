import { isIPv4 } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Container, ContainerCreateOptions, ContainerInfo, ContainerInspectInfo } from "dockerode";
import type { Observation, Runtime, RuntimeSpec } from "../reconcile/runtime.ts";
import { callEngine, type Engine, engineMessageOf, openEngine, statusOf, unavailable, unless } from "./client.ts";
import { createIsolation, recheckMs } from "./isolation.ts";
import { endedForMemory } from "./memory.ts";
import { networkName } from "./network.ts";
import { probeExec, probeHttp } from "./probe.ts";
import { pullImage } from "./pull.ts";

const labels = {
  sandbox: "sandgate.io/sandbox-id",
  workspace: "sandgate.io/workspace-id",
  installation: "sandgate.io/installation",
} as const;

/**
 * What root inside a container keeps: owning and reading its own files (package managers), dropping to another user
 * (su-exec, gosu, nginx's and postgres' entrypoints), signalling that user's processes, and ports below 1024.
 * Of Docker's own default set NET_RAW (forged packets, also at neighbours of the bridge), MKNOD, SYS_CHROOT, AUDIT_WRITE,
 * SETFCAP and FSETID are left out.
 */
const capabilities = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETPCAP", "SETUID"];

/** Containers inspected at once by `list`. */
const inspectedAtOnce = 16;

/** Of one `ensure`, 0.1 s apart. */
const creationAttempts = 20;

/** What the OCI runtime and the engine say about the image's own configuration; a failure of the engine has other words. */
const configurationFault =
  /OCI runtime create failed|unable to find (?:user|group)|no matching entries in (?:passwd|group)|cannot mkdir: .* is not a directory/i;

/** Linux's PATH_MAX without the NUL at its end. */
const longestPathBytes = 4_095;

/**
 * What an image may say about its containers, as JSON. Much of it is repeated in each list of containers, where some of the
 * 4 MiB that registries take would stop the engine's clients for everybody.
 */
const mostConfigBytes = 64 * 1024;

/** Images remembered to be good; their references can't come to mean others. */
const mostCheckedImages = 1_000;

/** Of one container in a list; one that the engine holds locked must not hold up the list of all. */
const listedInspectMs = 5_000;

const mebibyte = 1024 * 1024;

export interface DockerRuntimeOptions {
  /** `docker:///var/run/docker.sock`, `docker://host:port`, `unix://…` or `tcp://…`. */
  url: string;
  /** Objects of other installations on the same engine are neither listed nor touched. */
  installationId: string;
  /** False: no firewall rules and no demands on the engine, for a machine where all tenants are trusted. */
  isolation: boolean;
  /** An OCI runtime that the engine has set up, such as `runsc` (gVisor). The engine's default when absent. */
  runtimeName?: string | undefined;
  /**
   * IPv4 resolvers for sandboxes, public ones unless set. The engine's embedded resolver at 127.0.0.11 asks them from within the
   * container's network, so the firewall holds for it too; one in a private range is let through on port 53. A loopback
   * address is refused: the engine would ask it on the host. Names of the host's own resolver are not seen.
   */
  nameservers?: readonly string[] | undefined;
  /** MiB that a container may write to its own layer, 10,240 unless set; kept where the engine's storage can (see `create`). */
  diskMb?: number | undefined;
  logger: Logger;
}

/** Sandboxes as containers of a Docker-compatible engine (API 1.41 or later). The engine is first asked by the first call. */
export function createDockerRuntime(options: DockerRuntimeOptions): Runtime {
  const { installationId, runtimeName, logger } = options;
  const nameservers = options.nameservers ?? ["1.1.1.1", "8.8.8.8"];
  const unusable = nameservers.find((address) => !isIPv4(address) || address.startsWith("127."));
  if (unusable !== undefined) throw new Error(`not a resolver that sandboxes can use: ${unusable}`);
  const engine = openEngine(options.url);
  const isolation = createIsolation({ engine, enforce: options.isolation, runtimeName, nameservers });
  const ensuring = new Map<string, Promise<Observation>>();
  // Until the engine refuses it once: only overlay2 on xfs with pquota, btrfs, zfs and devicemapper have quotas.
  let limitsDisk = true;
  const checkedImages = new Set<string>();

  const containerOf = (sandboxId: string) => engine.getContainer(containerNameOf(sandboxId));
  const ourLabel = `${labels.installation}=${installationId}`;

  async function inspect(id: string, limits: { timeoutMs?: number } = {}): Promise<ContainerInspectInfo | undefined> {
    const container = engine.getContainer(id);
    const info = await unless(
      [404],
      callEngine((abortSignal) => container.inspect({ abortSignal }), limits),
    );
    if (info?.Config.Labels[labels.installation] !== installationId) return undefined;
    // Somebody is removing it by force: that it was killed for this is no end of its own.
    return info.State.Status === "removing" ? undefined : info;
  }

  function describe(spec: RuntimeSpec): ContainerCreateOptions {
    return {
      name: containerNameOf(spec.sandboxId),
      Image: spec.reference,
      Hostname: spec.sandboxId,
      Labels: {
        [labels.sandbox]: spec.sandboxId,
        [labels.workspace]: spec.workspaceId,
        [labels.installation]: installationId,
      },
      // The port's promise, whatever STOPSIGNAL the image declares.
      StopSignal: "SIGTERM",
      // Readiness is the platform's to probe; an image's own check would only run programs.
      Healthcheck: { Test: ["NONE"] },
      HostConfig: {
        NetworkMode: networkName,
        Dns: [...nameservers],
        // Without this the host's search domains would be copied.
        DnsSearch: ["."],
        PublishAllPorts: false,
        Memory: spec.memoryMb * mebibyte,
        MemorySwap: spec.memoryMb * mebibyte,
        OomKillDisable: false,
        // The host short of memory takes a sandbox before the engine or the platform.
        OomScoreAdj: 500,
        NanoCpus: Math.round(spec.cpus * 1e9),
        PidsLimit: spec.pids,
        CapDrop: ["ALL"],
        CapAdd: capabilities,
        // The engine's default seccomp and AppArmor profiles apply, since none is named.
        SecurityOpt: ["no-new-privileges"],
        Privileged: false,
        IpcMode: "private",
        RestartPolicy: { Name: "no" },
        // No init of the engine's: images that bring their own want to be PID 1, a missing command is then refused at
        // start, and it is as on Kubernetes. Zombies count against the process limit; what ignores SIGTERM is killed.
        Init: false,
        LogConfig: { Type: "json-file", Config: { "max-size": "64m", "max-file": "3" } },
        ...(limitsDisk ? { StorageOpt: { size: `${options.diskMb ?? 10_240}m` } } : {}),
        ...(runtimeName === undefined ? {} : { Runtime: runtimeName }),
      },
    };
  }

  /**
   * Refuses an image whose config is too large, and one whose command or working directory is longer than a path can be:
   * the OCI runtime's complaint would repeat it, and one longer than a pipe holds makes the engine wait for ever, with the
   * container locked.
   */
  async function checkImage(reference: string): Promise<void> {
    if (checkedImages.has(reference)) return;
    const image = await unless(
      [404],
      callEngine(() => engine.getImage(reference).inspect()),
    );
    // One that is gone is told so when its container is made.
    if (!image) return;
    if (Buffer.byteLength(JSON.stringify(image.Config)) > mostConfigBytes) {
      throw new DomainError(
        "PROVISIONING_FAILED",
        `The container could not be started: the image's labels, environment and the rest of its config are larger than ${mostConfigBytes} bytes.`,
      );
    }
    const { Entrypoint: entrypoint, Cmd: command, WorkingDir: folder } = image.Config;
    const program = [entrypoint ?? [], command ?? []].flat()[0] ?? "";
    if (Math.max(Buffer.byteLength(program), Buffer.byteLength(folder ?? "")) > longestPathBytes) {
      throw new DomainError(
        "PROVISIONING_FAILED",
        `The container could not be started: the image's command or working directory is longer than ${longestPathBytes} bytes.`,
      );
    }
    if (checkedImages.size >= mostCheckedImages) checkedImages.clear();
    checkedImages.add(reference);
  }

  /** Undefined when there is a container of that name already. */
  async function create(spec: RuntimeSpec): Promise<Container | undefined> {
    const description = describe(spec);
    try {
      return await callEngine((abortSignal) => engine.createContainer({ ...description, abortSignal }));
    } catch (error) {
      const message = engineMessageOf(error);
      // Others may have been refused the same meanwhile.
      if (description.HostConfig?.StorageOpt && /storage-opt|storage driver.*(quota|size)/i.test(message)) {
        if (limitsDisk) logger.warn({ reason: message }, "the engine's storage has no size limit for containers");
        limitsDisk = false;
        return create(spec);
      }
      // Made by an earlier attempt, or by another process meanwhile.
      if (statusOf(error) === 409) return undefined;
      if (statusOf(error) === 404 && /no such image/i.test(message)) {
        throw new DomainError("PROVISIONING_FAILED", "The image is no longer on the engine.", { cause: error });
      }
      if (statusOf(error) === 400) throw refused(error);
      throw error;
    }
  }

  async function start(container: Container): Promise<void> {
    try {
      await unless(
        [304],
        callEngine((abortSignal) => container.start({ abortSignal })),
      );
    } catch (error) {
      const status = statusOf(error);
      const isConfiguration = status === 400 || (status === 500 && configurationFault.test(engineMessageOf(error)));
      throw isConfiguration ? refused(error) : error;
    }
  }

  async function ensureOnce(spec: RuntimeSpec): Promise<Observation> {
    await isolation.verifyRecent();
    try {
      const name = containerNameOf(spec.sandboxId);
      let info = await inspect(name);
      if (!info || info.State.Status === "created") await checkImage(spec.reference);
      // A name can be taken before its container can be seen, while another process makes it or it is being removed.
      for (let attempt = 1; !info && attempt <= creationAttempts; attempt++) {
        if (attempt > 1) await delay(100);
        const made = await create(spec);
        if (made) await start(made);
        info = await inspect(name);
      }
      if (info?.State.Status === "created") {
        await start(engine.getContainer(info.Id));
        info = await inspect(name);
      }
      // Another installation's container has the name, or it was removed at once.
      if (!info) throw new DomainError("RUNTIME_UNAVAILABLE", "The container was not there after it was made.");
      return await observationOf(engine, info);
    } catch (error) {
      throw unavailable(error);
    }
  }

  async function listContainers(): Promise<ContainerInfo[]> {
    return callEngine((abortSignal) =>
      engine.listContainers({ all: true, filters: { label: [ourLabel] }, abortSignal }),
    );
  }

  async function listIds(): Promise<{ sandboxId: string }[]> {
    return (await listContainers()).map(({ Labels }) => ({ sandboxId: Labels[labels.sandbox] ?? "" }));
  }

  /** What `list` shows of a container: all that the engine tells of it, or when it doesn't in time, what its list says. */
  async function observeListed(listed: ContainerInfo): Promise<Observation | undefined> {
    try {
      const info = await inspect(listed.Id, { timeoutMs: listedInspectMs });
      return info && (await observationOf(engine, info));
    } catch (error) {
      if (statusOf(error) !== undefined) throw error;
      logger.warn({ sandboxId: listed.Labels[labels.sandbox] }, "the engine does not tell about a container in time");
      return summaryOf(listed);
    }
  }

  return {
    check: () => isolation.verify(),

    async findLocalImage(reference) {
      const image = engine.getImage(reference);
      const found = await unless(
        [404],
        callEngine(() => image.inspect()),
      ).catch(rethrowUnavailable);
      return found && { reference: found.Id, digest: found.Id };
    },

    pull: (request) => pullImage(engine, request),

    ensure(spec) {
      // One at a time for each sandbox: a second start after a quick exit would run it again.
      const running = ensuring.get(spec.sandboxId) ?? ensureOnce(spec).finally(() => ensuring.delete(spec.sandboxId));
      ensuring.set(spec.sandboxId, running);
      return running;
    },

    async inspect(sandboxId) {
      try {
        const info = await inspect(containerNameOf(sandboxId));
        return info && (await observationOf(engine, info));
      } catch (error) {
        throw unavailable(error);
      }
    },

    async probe(sandboxId, readinessPort, signal) {
      try {
        signal.throwIfAborted();
        const info = await inspect(containerNameOf(sandboxId));
        if (!info?.State.Running) return false;
        if (readinessPort === undefined) {
          return await probeExec(engine.getContainer(info.Id), new Date(info.State.StartedAt), signal);
        }
        const address = info.NetworkSettings.Networks[networkName]?.IPAddress;
        return address ? await probeHttp(address, readinessPort, signal) : false;
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        throw unavailable(error);
      }
    },

    async stop(sandboxId, graceSeconds) {
      const container = containerOf(sandboxId);
      if (graceSeconds > 0) {
        // The engine answers once the container has ended.
        const options = { timeoutMs: (graceSeconds + 30) * 1000 };
        const stopping = callEngine((abortSignal) => container.stop({ t: graceSeconds, abortSignal }), options);
        await unless([304, 404], stopping).catch(rethrowUnavailable);
        return;
      }
      try {
        const killing = callEngine((abortSignal) => container.kill({ signal: "SIGKILL", abortSignal }));
        await unless([404, 409], killing);
        await unless(
          [404],
          callEngine((abortSignal) => container.wait({ abortSignal })),
        );
      } catch (error) {
        throw unavailable(error);
      }
    },

    async remove(sandboxId) {
      const container = containerOf(sandboxId);
      const removing = callEngine((abortSignal) => container.remove({ force: true, v: true, abortSignal }));
      // 409: its removal is in progress already.
      await unless([404, 409], removing).catch(rethrowUnavailable);
    },

    async list() {
      try {
        const listed = await listContainers();
        const found: Observation[] = [];
        for (let from = 0; from < listed.length; from += inspectedAtOnce) {
          const seen = await Promise.all(listed.slice(from, from + inspectedAtOnce).map(observeListed));
          found.push(...seen.filter((each) => each !== undefined));
        }
        return found;
      } catch (error) {
        throw unavailable(error);
      }
    },

    observe: (signal) => observeEngine({ engine, ourLabel, listIds, verify: isolation.verify, logger, signal }),
  };
}

function containerNameOf(sandboxId: string): string {
  return `sandgate-${sandboxId}`;
}

function rethrowUnavailable(error: unknown): never {
  throw unavailable(error);
}

/** PROVISIONING_FAILED in the engine's words, without the layers they came through. */
function refused(error: unknown): DomainError {
  const words = engineMessageOf(error)
    .replace(/^.*(unable to start container process|container init|create failed): /s, "")
    .replace(/: unknown$/, "");
  return new DomainError("PROVISIONING_FAILED", `The container could not be started: ${words}`, { cause: error });
}

function summaryOf({ Labels, State: state, Created: created }: ContainerInfo): Observation | undefined {
  if (state === "removing") return undefined;
  return {
    sandboxId: Labels[labels.sandbox] ?? "",
    workspaceId: Labels[labels.workspace] ?? "",
    createdAt: new Date(created * 1000),
    phase: state === "created" ? "created" : state === "exited" || state === "dead" ? "exited" : "running",
  };
}

/** The engine writes the year 1 for a time that has not come. */
function timeOf(text: string): Date | undefined {
  return text.startsWith("0001-") ? undefined : new Date(text);
}

async function observationOf(engine: Engine, info: ContainerInspectInfo): Promise<Observation> {
  const { State: state, Config: config } = info;
  const startedAt = timeOf(state.StartedAt);
  const base = {
    sandboxId: config.Labels[labels.sandbox] ?? "",
    workspaceId: config.Labels[labels.workspace] ?? "",
    createdAt: new Date(info.Created),
    ...(startedAt && { startedAt }),
  };
  if (state.Status === "created") return { ...base, phase: "created" };
  if (state.Running) return { ...base, phase: "running" };
  return {
    ...base,
    phase: "exited",
    ...(startedAt && { exitCode: state.ExitCode }),
    outOfMemory: await endedForMemory(engine, info),
  };
}

/** `Runtime.observe`: the engine's events as wake-ups, with the isolation rules verified at each connect and every 30 s. */
async function* observeEngine(o: {
  engine: Engine;
  ourLabel: string;
  listIds(): Promise<{ sandboxId: string }[]>;
  verify(): Promise<void>;
  logger: Logger;
  signal: AbortSignal;
}): AsyncGenerator<{ sandboxId: string }> {
  // A set, so that a slow consumer costs one entry for each sandbox and no more.
  const pending = new Set<string>();
  let wake = () => {};
  const push = (sandboxId: string) => {
    pending.add(sandboxId);
    wake();
  };
  const stopped = new AbortController();
  const signal = AbortSignal.any([o.signal, stopped.signal]);
  signal.addEventListener("abort", () => wake(), { once: true });
  const verify = () =>
    o
      .verify()
      .catch((error: unknown) => o.logger.error({ err: error }, "the isolation of sandboxes could not be verified"));
  const timer = setInterval(verify, recheckMs).unref();
  const following = followEvents({ ...o, signal, push, verify });
  try {
    while (!signal.aborted) {
      for (const sandboxId of pending) {
        pending.delete(sandboxId);
        yield { sandboxId };
      }
      if (pending.size > 0 || signal.aborted) continue;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  } finally {
    clearInterval(timer);
    stopped.abort();
    await following;
  }
}

/** Reads the event stream until the signal aborts; connects again after 0.2 s, doubling to 5 s while the engine is away. */
async function followEvents(o: {
  engine: Engine;
  ourLabel: string;
  listIds(): Promise<{ sandboxId: string }[]>;
  verify(): Promise<unknown>;
  push(sandboxId: string): void;
  logger: Logger;
  signal: AbortSignal;
}): Promise<void> {
  let pauseMs = 200;
  while (!o.signal.aborted) {
    try {
      const events = await o.engine.getEvents({
        filters: { type: ["container"], event: ["create", "start", "die", "oom", "destroy"], label: [o.ourLabel] },
        abortSignal: o.signal,
      });
      pauseMs = 200;
      await o.verify();
      // After the stream is open: whatever changed before is in the list, whatever changes now is in the stream.
      for (const { sandboxId } of await o.listIds()) o.push(sandboxId);
      for await (const sandboxId of readEvents(events)) o.push(sandboxId);
    } catch (error) {
      if (!o.signal.aborted) o.logger.warn({ err: error }, "the engine's events can't be read");
    }
    await delay(pauseMs, undefined, { signal: o.signal }).catch(() => {});
    pauseMs = Math.min(pauseMs * 2, 5_000);
  }
}

async function* readEvents(events: NodeJS.ReadableStream): AsyncGenerator<string> {
  let text = "";
  for await (const chunk of events.setEncoding("utf8")) {
    const lines = `${text}${chunk}`.split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) {
      const event: { Actor?: { Attributes?: Record<string, string> } } = JSON.parse(line);
      const sandboxId = event.Actor?.Attributes?.[labels.sandbox];
      if (sandboxId !== undefined) yield sandboxId;
    }
  }
}
