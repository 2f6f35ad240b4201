import { join } from "node:path";
import { type Container, openEngine } from "@sandgate/docker-engine/client";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { removeHostObjects } from "@sandgate/test/platform/host-objects";
import {
  buildImage,
  engineAddress,
  openTestEngine,
  probeEngine,
  runSandboxContainer,
  type TestImage,
} from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";

import { afterAll, beforeAll, describe, expect, vi } from "vitest";
import { createSamplers } from "./samplers.ts";

const isAvailable = await requireServer("docker", probeEngine);

describe.runIf(isAvailable)("samples", () => {
  const engine = openTestEngine();
  const installationId = newId();
  const { signal } = new AbortController();
  let image: TestImage;

  beforeAll(async () => {
    image = await buildImage(engine, { command: ["sleep", "3600"] });
  });
  afterAll(async () => {
    await removeHostObjects(installationId);
    await image.remove();
  });

  const run = (script: string): Promise<Container> =>
    runSandboxContainer(engine, { image, script, sandboxId: newId(), workspaceId: newId(), installationId });

  /** Samplers, what they log, and their calls by where the figures came from. */
  function openSamplers(proc?: string) {
    const logger = createLogger({ service: "telemetry", level: "silent" });
    const info = vi.spyOn(logger, "info");
    const metrics = createMetrics();
    const samplerOf = createSamplers({
      engine: openEngine(engineAddress, metrics),
      logger,
      metrics,
      ...(proc !== undefined && { proc }),
    });
    const calls = async () => {
      const counted = await metrics.getSingleMetric("sandgate_engine_calls_total")?.get();
      return Object.fromEntries(counted?.values.map(({ labels, value }) => [labels.call, value]) ?? []);
    };
    return { samplerOf, info, calls };
  }

  test("from cgroup files are the engine's own figures, and cost it one call", async ({ folder }) => {
    // Uses some processor time, memory of its own and pages of a file, and then stands still.
    const container = await run(
      "dd if=/dev/zero of=/tmp/file bs=1M count=20; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; cat /tmp/file >/dev/null; echo done; sleep 3600",
    );
    await until(async () => expect(String(await container.logs({ stdout: true }))).toContain("done"));
    await container.pause();

    const files = openSamplers();
    const calls = openSamplers(join(folder, "proc"));
    const [sampleFiles, sampleCalls] = [files.samplerOf(container.id), calls.samplerOf(container.id)];
    const ours = await sampleFiles(signal);
    const theirs = await sampleCalls(signal);
    expect(ours?.cpuSeconds).toBeGreaterThan(0.01);
    expect(ours?.memoryBytes).toBeGreaterThan(0);
    expect(ours?.cpuSeconds).toBeCloseTo(theirs?.cpuSeconds ?? Number.NaN, 6);
    expect(ours?.memoryBytes).toBe(theirs?.memoryBytes);
    expect(Number((theirs?.timeNs ?? 0n) - (ours?.timeNs ?? 0n)) / 1e9).toBeLessThan(60);

    await sampleFiles(signal);
    await sampleCalls(signal);
    expect(await files.calls()).toEqual({ "GET containers/*/json": 1 });
    expect(await calls.calls()).toEqual({ "GET containers/*/json": 1, "GET containers/*/stats": 2 });
    expect(files.info.mock.calls.map(([, message]) => message)).toEqual([
      "samples of CPU and memory come from cgroup files",
    ]);
    expect(calls.info.mock.calls.map(([, message]) => message)).toEqual([
      "samples of CPU and memory come from calls of the container engine",
    ]);
  });

  test("are taken of nothing that has ended", async ({ folder }) => {
    const container = await run("sleep 3600");
    const samplers = [
      openSamplers().samplerOf(container.id),
      openSamplers(join(folder, "proc")).samplerOf(container.id),
    ];
    for (const sample of samplers) expect(await sample(signal)).toBeDefined();
    await container.kill();
    await container.wait();
    for (const sample of samplers) expect(await sample(signal)).toBeUndefined();
    await container.remove();
    for (const sample of samplers) expect(await sample(signal)).toBeUndefined();
  });
});
