import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { allShards } from "@sandgate/kit/process/shards";
import { until } from "@sandgate/test-support/until";
import { expect, test } from "vitest";
import { startCollector } from "./collector.ts";
import type { Container, ContainerEvent, ContainerSource } from "./container-source.ts";
import type { IngestClient } from "./source-writer.ts";

// The collector against scripted containers; sources of real ones have tests of their own.

function containerOf(i: number): Container {
  return { id: `container ${i}`, sandboxId: `sandbox ${i}`, state: "running" };
}

test("of many containers that a start finds a few are read at once, and a new one needn't wait behind them", async () => {
  const count = 40;
  const begun: string[] = [];
  let begunAtFirst: number | undefined;
  const started = Promise.withResolvers<ContainerEvent>();
  const containers: ContainerSource = {
    list: async () => Array.from({ length: count }, (_, i) => containerOf(i)),
    inspect: async () => containerOf(count),
    async *watch(signal) {
      yield await started.promise;
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    },
    async *readLogs() {},
    openSampler: () => async () => undefined,
  };
  const client: IngestClient = {
    ingestTelemetry(request) {
      const id = request.source?.containerId ?? "";
      if (!begun.includes(id)) begun.push(id);
      // Before any timer.
      setImmediate(() => {
        begunAtFirst ??= begun.length;
        started.resolve({ action: "start", containerId: `container ${count}` });
      });
      return new Promise(() => {});
    },
  };
  const metrics = createMetrics();
  const logger = createLogger({ service: "telemetry", level: "silent" });
  const collector = startCollector({ containers, client, shards: allShards, logger, metrics });
  await until(() => expect(begun).toHaveLength(count + 1));
  expect(begunAtFirst).toBe(8);
  expect(begun.indexOf(`container ${count}`)).toBeLessThan(count);
  const followed = await metrics.getSingleMetric("sandgate_telemetry_followed_containers")?.get();
  expect(followed?.values[0]?.value).toBe(count + 1);
  void collector.stop();
});

test("its state tells both that the engine can't be read and what else the source lacks", async () => {
  let isAway = true;
  let problem: string | undefined = "a right is missing";
  const containers: ContainerSource = {
    async list() {
      if (isAway) throw new Error("the engine is away");
      return [];
    },
    inspect: async () => undefined,
    async *watch(signal) {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    },
    async *readLogs() {},
    openSampler: () => async () => undefined,
    problem: () => problem,
  };
  const client: IngestClient = { ingestTelemetry: () => new Promise(() => {}) };
  const logger = createLogger({ service: "telemetry", level: "silent" });
  const collector = startCollector({ containers, client, shards: allShards, logger, metrics: createMetrics() });
  await until(() => expect(collector.state()).toBe("the engine is away; a right is missing"));
  isAway = false;
  await until(() => expect(collector.state()).toBe("a right is missing"));
  problem = undefined;
  expect(collector.state()).toBe("ok");
  await collector.stop();
});
