import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import type { NodeSource } from "../collect/container-source.ts";
import { openKubeletSamples } from "./kubelet-samples.ts";
import { openPodSource } from "./pod-source.ts";

/** Opens the sandboxes' pods of this node: their logs from the kubelet's files, their samples from the kubelet. */
export function openNodePods(o: {
  /** The namespace of sandboxes. */
  namespace: string;
  /** Where the kubelet has the logs of pods. */
  podLogs: string;
  kubeletUrl: string;
  kubeletTokenFile: string;
  kubeletCaFile: string;
  kubeletVerify: boolean;
  logger: Logger;
  metrics: Metrics;
}): NodeSource {
  const samples = openKubeletSamples({
    url: o.kubeletUrl,
    tokenFile: o.kubeletTokenFile,
    caFile: o.kubeletVerify ? o.kubeletCaFile : undefined,
    logger: o.logger,
    metrics: o.metrics,
  });
  return openPodSource({ folder: o.podLogs, namespace: o.namespace, samples, logger: o.logger });
}
