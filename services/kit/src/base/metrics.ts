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
import { untilAborted } from "./abort.ts";
import type { Logger } from "./logging.ts";

/** More than the states of dependencies take, and less than a scraper waits (10 s). */
const collectTimeoutMs = 3_000;

export type Metrics = Registry;

/**
 * Creates a registry. `processMetrics` adds the figures of Node and of the process, which belong in one registry per
 * process.
 */
export function createMetrics(o: { processMetrics?: boolean } = {}): Metrics {
  const registry = new Registry();
  // The default would wake the event loop every 10 ms to measure its delay.
  if (o.processMetrics) collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: 100 });
  return registry;
}

/** Returns the registry's counter of that name, created at its first use. */
export function counter<L extends string>(metrics: Metrics, o: CounterConfiguration<L>): Counter<L> {
  const known = metrics.getSingleMetric(o.name);
  return known instanceof Counter ? known : new Counter({ ...o, registers: [metrics] });
}

/** Returns the registry's gauge of that name, created at its first use. */
export function gauge<L extends string>(metrics: Metrics, o: GaugeConfiguration<L>): Gauge<L> {
  const known = metrics.getSingleMetric(o.name);
  return known instanceof Gauge ? known : new Gauge({ ...o, registers: [metrics] });
}

/** Returns the registry's histogram of that name, created at its first use. */
export function histogram<L extends string>(metrics: Metrics, o: HistogramConfiguration<L>): Histogram<L> {
  const known = metrics.getSingleMetric(o.name);
  return known instanceof Histogram ? known : new Histogram({ ...o, registers: [metrics] });
}

/**
 * Prints several registries as one Prometheus text; equal series are added up. A metric that can't be read within 3 s
 * is left out and logged, so that whoever watches the process sees the others when a database or a disk is away.
 */
export async function printMetrics(registries: readonly Metrics[], logger: Logger): Promise<string> {
  const signal = AbortSignal.timeout(collectTimeoutMs);
  async function read(metrics: Metrics, metric: string) {
    try {
      const values = metrics.getSingleMetric(metric)?.get();
      return (await untilAborted(Promise.resolve(values), signal)) ?? [];
    } catch (error) {
      logger.warn({ err: error, metric }, "a metric can't be read");
      return [];
    }
  }
  const all = registries.map(async (each) =>
    (await Promise.all(each.getMetricsAsArray().map(({ name }) => read(each, name)))).flat(),
  );
  return AggregatorRegistry.aggregate(await Promise.all(all)).metrics();
}
