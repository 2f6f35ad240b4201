import {
  AggregatorRegistry,
  Counter,
  type CounterConfiguration,
  collectDefaultMetrics,
  Gauge,
  type GaugeConfiguration,
  Histogram,
  type HistogramConfiguration,
  Registry,
} from "prom-client";

export type Metrics = Registry;

/** A registry of its own. `processMetrics` adds Node's and the process's figures, which belong in one registry per process. */
export function createMetrics(o: { processMetrics?: boolean } = {}): Metrics {
  const registry = new Registry();
  // By default Node's loop is woken every 10 ms to measure its delay.
  if (o.processMetrics) collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  return registry;
}

/** The registry's counter of that name, created at first use. */
export function counter<L extends string>(metrics: Metrics, o: CounterConfiguration<L>): Counter<L> {
  const known = metrics.getSingleMetric(o.name);
  return known instanceof Counter ? known : new Counter({ ...o, registers: [metrics] });
}

/** The registry's gauge of that name, created at first use. */
export function gauge<L extends string>(metrics: Metrics, o: GaugeConfiguration<L>): Gauge<L> {
  const known = metrics.getSingleMetric(o.name);
  return known instanceof Gauge ? known : new Gauge({ ...o, registers: [metrics] });
}

/** The registry's histogram of that name, created at first use. */
export function histogram<L extends string>(metrics: Metrics, o: HistogramConfiguration<L>): Histogram<L> {
  const known = metrics.getSingleMetric(o.name);
  return known instanceof Histogram ? known : new Histogram({ ...o, registers: [metrics] });
}

/** The Prometheus text of several registries as one; equal series are added up. */
export async function printMetrics(registries: readonly Metrics[]): Promise<string> {
  return AggregatorRegistry.aggregate(await Promise.all(registries.map((each) => each.getMetricsAsJSON()))).metrics();
}
