import { containerLabels, containerNameOf } from "@sandgate/container-labels";
import type { ContainerCreateOptions } from "@sandgate/docker-engine/client";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { capabilities } from "../isolation/capabilities.ts";
import type { RuntimeSpec } from "../lifecycle.ts";
import { helperMount } from "./helper-volume.ts";
import type { ImagePaths } from "./image-check.ts";

/**
 * Keeps the engine's embedded resolver (127.0.0.11) out of the container, which would tell it the names and addresses
 * of all others on the network. Where that can't be done, each workspace has networks of its own (`resolverReason`).
 * Engines 20.10 to 25 start no resolver when they can't read `ndots` as a number, and leave the nameservers in
 * resolv.conf; libraries read the default of 1, since the second colon ends the number.
 */
const withoutEmbeddedResolver = "ndots:1:";

/** What the containers of one installation have in common. */
export interface ContainerDefaults {
  installationId: string;
  nameservers: readonly string[];
  /** Undefined: the engine's default. */
  ociRuntime: string | undefined;
  /**
   * MiB that the container may write, to its own layer where the storage can limit that, and to volumes of its image.
   */
  diskMb: number;
  limitsDisk: boolean;
}

/** What one container is given besides. */
export interface ContainerAllocation {
  networkName: string;
  /** The control group that the container's is made in. Undefined: the engine's default. */
  cgroupParent: string | undefined;
  /** Whether the engine itself has no rights on its host. */
  isRootless: boolean;
  volumes: ImagePaths["volumes"];
  env: Readonly<Record<string, string>>;
  /** The volume that the helper is in. */
  helper: string | undefined;
}

/**
 * How a sandbox's container is created. Instead of a volume, whose size nothing limits, each path in `volumes` gets a
 * file system in the container's memory. Pulled images have no volumes (`withoutVolumes`).
 */
export function containerOptionsOf(
  spec: RuntimeSpec,
  { networkName, cgroupParent, isRootless, volumes, env, helper }: ContainerAllocation,
  defaults: ContainerDefaults,
): ContainerCreateOptions {
  const { installationId, nameservers, ociRuntime, diskMb, limitsDisk } = defaults;
  return {
    name: containerNameOf(spec.sandboxId),
    Image: spec.reference,
    // The image's own command would follow an entrypoint alone.
    ...(spec.command && { Entrypoint: [...spec.command], Cmd: [] }),
    Hostname: spec.sandboxId,
    Labels: containerLabels({ sandboxId: spec.sandboxId, workspaceId: spec.workspaceId, installationId }),
    // Added to the image's by the engine.
    Env: Object.entries(env).map((each) => each.join("=")),
    // The port promises SIGTERM, whatever STOPSIGNAL the image declares.
    StopSignal: "SIGTERM",
    // The platform probes readiness itself; an image's own check would only run programs.
    Healthcheck: { Test: ["NONE"] },
    HostConfig: {
      NetworkMode: networkName,
      Dns: [...nameservers],
      DnsOptions: [withoutEmbeddedResolver],
      // Without this the host's search domains would be copied.
      DnsSearch: ["."],
      PublishAllPorts: false,
      Memory: spec.memoryMb * mebibyte,
      MemorySwap: spec.memoryMb * mebibyte,
      OomKillDisable: false,
      // A host short of memory kills a sandbox before the engine or the platform.
      OomScoreAdj: 500,
      NanoCpus: Math.round(spec.cpus * 1e9),
      PidsLimit: spec.pids,
      // A program that crashes would leave its memory on the host, or start the host's own handler there as root. At this
      // limit, in bytes, the kernel does neither (core(5)); at 0 it starts the handler. From there a rootless engine can't
      // raise it, and would start no container.
      ...(!isRootless && { Ulimits: [{ Name: "core", Soft: 1, Hard: 1 }] }),
      CapDrop: ["ALL"],
      CapAdd: [...capabilities],
      // The engine's default seccomp and AppArmor profiles apply, since none is named.
      SecurityOpt: ["no-new-privileges"],
      Privileged: false,
      IpcMode: "private",
      RestartPolicy: { Name: "no" },
      // No init of the engine's: images that bring their own want to be PID 1, a missing command is then refused at
      // start, and it is as on Kubernetes. Zombies count against the process limit; what ignores SIGTERM is killed.
      Init: false,
      LogConfig: { Type: "json-file", Config: { "max-size": "64m", "max-file": "3" } },
      ...(helper !== undefined && { Mounts: [helperMount(helper, { readOnly: true })] }),
      ...(limitsDisk && { StorageOpt: { size: `${diskMb}m` } }),
      ...(volumes.length > 0 && { Tmpfs: Object.fromEntries(volumes.map((path) => [path, tmpfsOf(spec, diskMb)])) }),
      ...(ociRuntime === undefined ? {} : { Runtime: ociRuntime }),
      ...(cgroupParent === undefined ? {} : { CgroupParent: cgroupParent }),
    },
  };
}

/**
 * Its files count as memory, so its size is at most half of that: a program gets ENOSPC before the container is killed.
 */
function tmpfsOf({ memoryMb }: RuntimeSpec, diskMb: number): string {
  return `rw,exec,nosuid,nodev,mode=1777,size=${Math.max(1, Math.floor(Math.min(diskMb, memoryMb / 2)))}m`;
}
