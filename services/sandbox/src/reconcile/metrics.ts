import { counter, gauge, histogram, type Metrics } from "@sandgate/kit/base/metrics";
import type { SandboxStore } from "../store/store.ts";

/** The metrics of the reconciler, and how many sandboxes it has to work on. */
export function openReconcilerMetrics(metrics: Metrics, unfinished: SandboxStore["unfinished"]) {
  gauge(metrics, {
    name: "sandgate_sandboxes",
    help: "Sandboxes that are not ended and cleaned, by state",
    labelNames: ["state"],
    async collect() {
      this.reset();
      for (const [state, count] of Object.entries(await unfinished.countByState())) {
        this.set({ state }, count);
      }
    },
  });
  return {
    readySeconds: histogram(metrics, {
      name: "sandgate_sandbox_ready_seconds",
      help: "Time from the acceptance of a sandbox until it was ready",
      buckets: [0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600],
    }),
    logsLost: counter(metrics, {
      name: "sandgate_sandbox_logs_lost_total",
      help: "Containers removed before their logs were read to the end",
    }),
  };
}
