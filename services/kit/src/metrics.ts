import { collectDefaultMetrics, Registry } from "prom-client";

export type Metrics = Registry;

/** A registry of its own. `processMetrics` adds Node's and the process's figures, which belong in one registry per process. */
export function createMetrics(o: { processMetrics?: boolean } = {}): Metrics {
  const registry = new Registry();
  if (o.processMetrics) collectDefaultMetrics({ register: registry });
  return registry;
}
