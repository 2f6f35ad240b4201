import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import { openApi } from "@sandgate/kubernetes-api/api";
import type { Runtime } from "../runtime.ts";
import { createKubernetesLifecycle } from "./lifecycle.kubernetes.ts";
import { createNamespaces } from "./namespaces.ts";
import type { PodEgressPolicy } from "./network-policy.ts";
import { createObserver } from "./observer.ts";
import { createKubernetesOperations } from "./operations.kubernetes.ts";
import { createPodEvents } from "./pod-events.ts";
import { createPodRequests } from "./pod-requests.ts";
import type { PodDefaults } from "./pod-spec.ts";
import { createPods } from "./pods.ts";
import { createPullSecrets } from "./pull-secrets.ts";

export interface KubernetesRuntimeOptions {
  /** `kubernetes:` in a pod, or `kubernetes:<path of a kubeconfig>`. */
  address: string;
  installationId: string;
  /** The namespace of all pods; with more than one, what their names begin with. */
  namespace: string;
  /** How many namespaces the pods are spread over, by workspace. */
  namespaces: number;
  /** False: no network policy, and no demands on the namespace. */
  isolation: boolean;
  pod: Omit<PodDefaults, "installationId" | "nameservers" | "architecture">;
  network: PodEgressPolicy;
  /** Requests that change something, at most. */
  writesPerSecond: number;
  logger: Logger;
  metrics?: Metrics;
}

/** Sandboxes as pods of a Kubernetes cluster (1.30 or later). Nothing is connected before the first call. */
export function createKubernetesRuntime(options: KubernetesRuntimeOptions): Runtime {
  const { installationId, logger } = options;
  const api = openApi(options.address, options);
  const namespaces = createNamespaces({ ...options, api });
  const pods = createPods({ api, namespaces: namespaces.all, installationId, logger });
  const events = createPodEvents({ api, pods });
  const observer = createObserver({ api, events });
  const pullSecrets = createPullSecrets({ api, namespaces, pods, events, logger });
  const defaults: PodDefaults = {
    ...options.pod,
    installationId,
    nameservers: options.network.nameservers,
    architecture: process.arch === "x64" ? "amd64" : process.arch,
  };
  const requests = createPodRequests({ api, namespaces, pods, pullSecrets, defaults });
  return {
    lifecycle: createKubernetesLifecycle({ namespaces, pods, requests, observer, pullSecrets }),
    operations: createKubernetesOperations({
      api,
      pods,
      observer,
      hasHelper: defaults.helperImage !== undefined,
    }),
    async close() {
      await pods.close();
      await api.close();
    },
  };
}
