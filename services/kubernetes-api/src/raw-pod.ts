/** The container that a sandbox's pod is made for; a cluster may add others. */
export const containerName = "sandbox";
/** The one that is started just before it, gives it the helper, and ends. */
export const helperContainerName = "helper";

interface RawTerminated {
  exitCode: number;
  reason?: string;
  message?: string;
  startedAt?: string | null;
  finishedAt?: string | null;
}

interface RawContainerStatus {
  name: string;
  started?: boolean;
  state?: {
    waiting?: { reason?: string; message?: string };
    running?: { startedAt?: string | null };
    terminated?: RawTerminated;
  };
}

/** The parts of a Pod (core/v1) that are read. */
export interface RawPod {
  metadata: {
    name: string;
    namespace: string;
    uid: string;
    resourceVersion: string;
    creationTimestamp: string;
    deletionTimestamp?: string;
    deletionGracePeriodSeconds?: number;
    finalizers?: string[];
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    /** Who set which fields, and when, by the control plane's clock. */
    managedFields?: { time?: string; fieldsV1?: { "f:status"?: { "f:startTime"?: object } } }[];
  };
  spec: {
    nodeName?: string;
    schedulingGates?: { name: string }[];
    imagePullSecrets?: { name: string }[];
    activeDeadlineSeconds?: number;
    containers: { name: string; startupProbe?: { httpGet?: { port?: number } } }[];
  };
  status?: {
    phase?: string;
    reason?: string;
    message?: string;
    startTime?: string;
    conditions?: { type: string; status: string; reason?: string; message?: string; lastTransitionTime?: string }[];
    containerStatuses?: RawContainerStatus[];
  };
}
