import { counter, gauge, type Metrics } from "@sandgate/kit/base/metrics";

/** The metrics of previews. None names a tenant. */
export type PreviewMetrics = ReturnType<typeof openPreviewMetrics>;

export function openPreviewMetrics(metrics: Metrics) {
  return {
    requests: counter(metrics, {
      name: "sandgate_preview_requests_total",
      help: "Requests on the hosts of previews, by kind (http, websocket) and the first digit of the status",
      labelNames: ["kind", "status"],
    }),
    connections: gauge(metrics, {
      name: "sandgate_preview_connections",
      help: "Open connections of previews to servers in sandboxes",
    }),
    bytes: counter(metrics, {
      name: "sandgate_preview_bytes_total",
      help: "Bytes of previews from (in) and to (out) servers in sandboxes, counted when their connection closes",
      labelNames: ["direction"],
    }),
  };
}
