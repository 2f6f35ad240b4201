import { counter, gauge, histogram, type Metrics } from "@sandgate/kit/base/metrics";

/** The metrics of what is done in sandboxes. None names a tenant. */
export type OperationMetrics = ReturnType<typeof openOperationMetrics>;

export function openOperationMetrics(metrics: Metrics) {
  return {
    /** By the RPC's name. */
    seconds: histogram(metrics, {
      name: "sandgate_operation_seconds",
      help: "Duration of calls that use a sandbox, by call",
      labelNames: ["call"],
      buckets: [0.005, 0.025, 0.1, 0.5, 2.5, 10, 60, 600, 3_600],
    }),
    open: gauge(metrics, {
      name: "sandgate_operations_open",
      help: "Open calls that use a sandbox, streams included, by call",
      labelNames: ["call"],
    }),
    connections: gauge(metrics, {
      name: "sandgate_helper_connections",
      help: "Open connections to the helpers of sandboxes",
    }),
    bytes: counter(metrics, {
      name: "sandgate_helper_bytes_total",
      help: "Bytes to and from the helpers of sandboxes, by direction, counted when their connection closes",
      labelNames: ["direction"],
    }),
  };
}
