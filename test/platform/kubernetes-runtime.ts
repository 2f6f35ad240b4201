import { createLogger } from "@sandgate/kit/base/logging";
import { createKubernetesRuntime, type KubernetesRuntimeOptions } from "@sandgate/sandbox/runtime.kubernetes";
import type { RuntimeLifecycle } from "@sandgate/sandbox/runtime-lifecycle";
import type { RuntimeOperations } from "@sandgate/sandbox/runtime-operations";

/** What differs from small sandboxes in one namespace, isolated and without a lookup of names. */
export type RuntimeChanges = Partial<Omit<KubernetesRuntimeOptions, "address" | "pod" | "network">> & {
  pod?: Partial<KubernetesRuntimeOptions["pod"]>;
  network?: Partial<KubernetesRuntimeOptions["network"]>;
};

const logger = createLogger({
  service: "runtime-test",
  level: process.env.SANDGATE_LOG_LEVEL === "debug" ? "debug" : "silent",
});

export type OpenLifecycle = RuntimeLifecycle & { operations: RuntimeOperations; close(): Promise<void> };

/** The adapter alone, with the rights of a kubeconfig. */
export function openKubernetesRuntime(
  kubeconfig: string,
  installationId: string,
  changes: RuntimeChanges = {},
): OpenLifecycle {
  const { lifecycle, operations, close } = createKubernetesRuntime({
    address: `kubernetes:${kubeconfig}`,
    installationId,
    namespace: "sandboxes",
    namespaces: 1,
    isolation: true,
    writesPerSecond: 200,
    logger,
    ...changes,
    pod: {
      cpuRequestMillis: 10,
      diskMb: 128,
      security: "baseline",
      userNamespaces: false,
      runtimeClass: undefined,
      helperImage: undefined,
      nodeLostSeconds: 60,
      startSeconds: 600,
      ...changes.pod,
    },
    network: { nameservers: ["1.1.1.1"], smtp: false, closed: ["10.0.0.0/8"], deny: [], allow: [], ...changes.network },
  });
  return { ...lifecycle, operations, close };
}
