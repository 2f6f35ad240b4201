import { readFile } from "node:fs/promises";
import { type EngineInfo, openEngine, readInfo } from "@sandgate/docker-engine/client";
import type { Logger } from "@sandgate/kit/base/logging";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { minuteMs } from "@sandgate/kit/base/time";

/** The part of an engine's `info` that shows how a sandbox is separated from its host's kernel. */
type KernelInfo = Pick<EngineInfo, "DefaultRuntime" | "Runtimes" | "SecurityOptions">;

/** Since this version the engine's seccomp profile keeps containers from vsock, and from io_uring, which leads to it. */
const firstWithoutHostBus = 25;

/**
 * OCI runtimes with a kernel of their own for each container, or a user namespace, by their names, programs or types.
 */
const separating = /runsc|gvisor|kata|sysbox/i;

/**
 * Whether root in a container is root on the engine's host to the kernel that both share: the engine uses no user
 * namespaces, isn't rootless, and its OCI runtime for sandboxes is neither gVisor, Kata nor Sysbox.
 */
export function sharesKernelAsRoot(info: KernelInfo, ociRuntime: string | undefined): boolean {
  const hasNamespaces = info.SecurityOptions?.some((option) => /^name=(userns|rootless)\b/.test(option)) ?? false;
  return !hasNamespaces && !separating.test(describeRuntime(info, ociRuntime));
}

/**
 * Whether a sandbox opens sockets of vsock, the bus between virtual machines and their host, which knows neither network
 * namespaces nor firewalls. Under a seccomp profile of the operator's it is theirs to say.
 * @param protocols those that the kernel of the engine's host knows (/proc/net/protocols)
 */
export function opensHostBus(
  info: KernelInfo & Pick<EngineInfo, "ServerVersion">,
  ociRuntime: string | undefined,
  protocols: string,
): boolean {
  const isDefault = (option: string) => /^name=seccomp,profile=(default|builtin)$/.test(option);
  return (
    /^AF_VSOCK\b/m.test(protocols) &&
    (info.SecurityOptions?.some(isDefault) ?? false) &&
    Number.parseInt(info.ServerVersion, 10) < firstWithoutHostBus &&
    !separating.test(describeRuntime(info, ociRuntime))
  );
}

/** The name of the OCI runtime, and what the engine says of it. */
function describeRuntime(info: KernelInfo, ociRuntime: string | undefined): string {
  const runtime = ociRuntime ?? info.DefaultRuntime ?? "";
  return `${runtime} ${JSON.stringify(info.Runtimes?.[runtime] ?? "")}`;
}

/** An engine's sandboxes, and who may have some. */
interface KernelUse {
  /** The engine's address. */
  url: string;
  ociRuntime: string | undefined;
  /** Whether anyone may register. */
  isOpen: boolean;
}

/** What an operator should know of what sandboxes share with the engine's host. Throws where the engine is away. */
export async function readKernelWarnings(o: KernelUse): Promise<string[]> {
  const info = await readInfo(openEngine(o.url));
  // Elsewhere than on Linux there is none.
  const protocols = await readFile("/proc/net/protocols", "utf8").catch(() => "");
  return [
    ...(o.isOpen && sharesKernelAsRoot(info, o.ociRuntime)
      ? [
          "Anyone may register, and the engine has neither user namespaces nor gVisor: whoever escapes from a sandbox through the kernel is root on this host. Set userns-remap on the engine, SANDGATE_OCI_RUNTIME=runsc, or SANDGATE_REGISTRATION=closed.",
        ]
      : []),
    ...(opensHostBus(info, o.ociRuntime, protocols)
      ? [
          "Sandboxes can connect to the hypervisor of this host by vsock, which no firewall covers. Use Docker Engine 25 or later, or another of the ways in deploy/README.md.",
        ]
      : []),
  ];
}

/** Logs them once, when the engine first answers. An engine that is away is asked again each minute. */
export function startKernelWarnings(o: KernelUse & { logger: Logger }): PeriodicTask {
  let isKnown = false;
  return startPeriodicTask({
    what: "ask the engine how it separates sandboxes from its host",
    everyMs: minuteMs,
    logger: o.logger,
    async work() {
      if (isKnown) return;
      const warnings = await readKernelWarnings(o);
      isKnown = true;
      for (const warning of warnings) o.logger.info(warning);
    },
  });
}
