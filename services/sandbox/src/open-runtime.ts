import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { deniedRanges } from "./runtime/isolation/denied-ranges.ts";
import type { Runtime } from "./runtime/runtime.ts";
import type { SandboxSettings } from "./settings.ts";

/**
 * Imports the adapter when it is called, so that whoever only reads the settings doesn't load a client of the engine.
 */
export async function openRuntime(
  settings: SandboxSettings,
  installationId: string,
  logger: Logger,
  metrics: Metrics,
): Promise<Runtime> {
  if (settings.runtime.startsWith("kubernetes:")) {
    const { createKubernetesRuntime } = await import("./runtime/kubernetes/runtime.kubernetes.ts");
    return createKubernetesRuntime({
      address: settings.runtime,
      installationId,
      namespace: settings.namespace,
      namespaces: settings.namespaces,
      isolation: settings.isolation === "on",
      pod: {
        cpuRequestMillis: settings.cpuRequestMillis,
        diskMb: settings.diskMb,
        security: settings.podSecurity,
        userNamespaces: settings.userNamespaces,
        runtimeClass: settings.ociRuntime,
        helperImage: settings.helperImage,
        nodeLostSeconds: settings.nodeLostSeconds,
        startSeconds: settings.schedulingTimeoutSeconds + settings.pullTimeoutSeconds,
      },
      network: {
        nameservers: settings.nameservers,
        smtp: settings.allowSmtp,
        closed: deniedRanges,
        deny: settings.egressDeny,
        allow: settings.egressAllow,
      },
      writesPerSecond: settings.writesPerSecond,
      logger,
      metrics,
    });
  }
  const { createDockerRuntime } = await import("./runtime/docker/runtime.docker.ts");
  return createDockerRuntime({
    url: settings.runtime,
    installationId,
    isolation: settings.isolation === "on",
    ociRuntime: settings.ociRuntime,
    nameservers: settings.nameservers,
    network: {
      maxConnections: settings.maxConnections,
      newConnectionsPerSecond: settings.newConnectionsPerSecond,
      bandwidthMbit: settings.bandwidthMbit,
      smtp: settings.allowSmtp,
      deny: settings.egressDeny,
      allow: settings.egressAllow,
    },
    subnets: settings.subnets,
    totals: {
      pids: settings.allPids || undefined,
      memoryMb: settings.allMemoryMb || undefined,
      cpuWeight: settings.allCpuWeight,
    },
    diskMb: settings.diskMb,
    logger,
    metrics,
  });
}
