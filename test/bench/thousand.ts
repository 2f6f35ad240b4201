import process, { env } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { openTestEngine } from "@sandgate/test-support/images";
import type { ContainerCreateOptions } from "dockerode";
import pLimit from "p-limit";
import { expectStatus } from "../conformance/client.ts";
import type { TestPlatform } from "../platform/local.ts";
import { listContainers, type Operator, openOperator } from "../platform/operator.ts";
import { type Figure, median, percentile, sum } from "./figure.ts";
import { startBenchPlatform } from "./platform.ts";
import { ratesBetween, readMetric } from "./platform-metrics.ts";
import { processorMs, processorMsOf, residentMb } from "./process-figures.ts";
import { report } from "./report.ts";
import { openWorkspaces } from "./sandboxes.ts";

/** How many run at once. */
const sandboxes = Number(env.SANDGATE_BENCH_SANDBOXES ?? 1_200);
/** As many as a workspace may have. */
const perWorkspace = 100;
/** Requests of clients at once, and of what starts on the bare engine: as many as the platform starts at once. */
const concurrency = 16;
/** The first and the last so many are compared, with so many on the bare engine. */
const sample = 100;
const idleSeconds = 60;
const idlePauseMs = 15_000;
/** An engine that has come to a standstill never ends them. */
const longestStopSeconds = 600;

/**
 * As many small sandboxes as one engine takes, of several workspaces, by one process: what each further one costs, the
 * platform and the engine while nothing happens, a restart in the middle, and the end of all. The bare engine, whose
 * own times grow with what runs on it, is measured before the first and with all of them running.
 */
export async function measureThousand(): Promise<Figure[]> {
  const platform = await startBenchPlatform();
  const figures: Figure[] = [];
  try {
    await measureRunning(platform, figures);
  } catch (error) {
    reportFailure("what is not shown could not be measured", error);
  }
  await platform.stop().catch((error: unknown) => reportFailure("the platform could not be removed", error));
  return figures;
}

/** Adds the figures one by one: those of half an hour are not lost for what fails at the end. */
async function measureRunning(platform: TestPlatform, figures: Figure[]): Promise<void> {
  const operator = await openOperator(platform);
  const workspaces = await openWorkspaces(operator, Math.ceil(sandboxes / perWorkspace));
  const imageId = await registerSmallImage(operator);
  const options = await readOptions(operator, imageId);
  const emptySeconds = (await measureRestart(platform, 0)).readySeconds;
  const emptyMb = await residentMb(platform.process.child.pid);

  const bareFirst = await timeBare(options);
  const half = Math.floor(sandboxes / 2);
  const first = await provision({ operator, workspaces, imageId, count: half });
  const count = Math.min(sample, half);
  const firstMs = spanOf(first.readyMs.slice(0, count));
  report(`${half} are ready, the first ${count} within ${secondsOf(firstMs)} s`);
  const restart = await measureRestart(platform, half);
  report(`ready again after ${restart.readySeconds.toFixed(1)} s, ${emptySeconds.toFixed(1)} s without sandboxes`);
  figures.push({
    what: `restart with ${half} sandboxes`,
    value: restart.readySeconds / emptySeconds,
    unit: "",
    aim: "at most 2 times that without any",
    detail: `${restart.readySeconds.toFixed(1)} s until readyz answers against ${emptySeconds.toFixed(1)} s; all logs are read again after ${restart.followedSeconds.toFixed(1)} s, and all were still ready`,
  });
  const rest = await provision({ operator, workspaces, imageId, count: sandboxes - half, from: half });
  const lastMs = spanOf(rest.readyMs.slice(-count));
  report(`${sandboxes} are ready, the last ${count} within ${secondsOf(lastMs)} s`);
  const started = [...first.started, ...rest.started];
  const bareLast = await timeBare(options);
  const ratio = lastMs / firstMs;
  const bareRatio = bareLast.startMs / bareFirst.startMs;
  report(`the bare engine: ${sample} in ${secondsOf(bareFirst.startMs)} s, then in ${secondsOf(bareLast.startMs)} s`);
  figures.push({
    what: `last ${count} of ${sandboxes} sandboxes, of the first ${count}'s time`,
    value: ratio,
    unit: "",
    aim: "what the bare engine's own is, at most 1.2 times",
    detail: `${secondsOf(lastMs)} s against ${secondsOf(firstMs)} s; the bare engine ${bareRatio.toFixed(2)} (${secondsOf(bareLast.startMs)} s against ${secondsOf(bareFirst.startMs)} s), so ${(ratio / bareRatio).toFixed(2)} times`,
  });

  await delay(idlePauseMs);
  const idle = await measureIdle(platform);
  report(
    `idle: ${(idle.platformCpu * 100).toFixed(1)} % of a core, ${idle.residentMb.toFixed(0)} MB, ${idle.calls} a second`,
  );
  figures.push(
    {
      what: `memory with ${sandboxes} sandboxes`,
      value: idle.residentMb,
      unit: " MB",
      aim: "at most 500 MB",
      detail: `resident set of the platform; ${emptyMb.toFixed(0)} MB without any`,
    },
    {
      what: `CPU while ${sandboxes} sandboxes are idle`,
      value: idle.platformCpu * 100,
      unit: " % of a core",
      aim: "at most 25 %",
      detail: `the platform over ${idleSeconds} s; dockerd ${(idle.dockerdCpu * 100).toFixed(0)} %, containerd and its shims ${(idle.containerdCpu * 100).toFixed(0)} %`,
    },
    {
      what: "engine calls a second for each idle sandbox",
      value: idle.callsPerSecond / sandboxes,
      unit: "",
      aim: "at most 0.1",
      detail: `${idle.callsPerSecond.toFixed(1)} a second in all: ${idle.calls}`,
    },
  );
  const gaps = await readGaps(operator, started, idle.sinceMs);
  report(`samples: median ${median(gaps).toFixed(2)} s, 99th percentile ${percentile(gaps, 0.99).toFixed(2)} s`);
  figures.push({
    what: "gap between two samples, 99th percentile",
    value: percentile(gaps, 0.99),
    unit: " s",
    aim: "at most 7 s",
    detail: `median ${median(gaps).toFixed(2)} s, longest ${Math.max(...gaps).toFixed(1)} s, of ${gaps.length} gaps`,
  });

  const ending = await stopAll(operator, platform, started);
  report(`stopped after ${ending.stoppedSeconds.toFixed(0)} s, removed after ${ending.removedSeconds.toFixed(0)} s`);
  // What one takes grows with how many there are, so on the way to none it is the mean of both.
  const bareSeconds = ((bareFirst.stopMs + bareLast.stopMs) / 2 / 1000) * (sandboxes / sample);
  figures.push(
    {
      what: `${sandboxes} sandboxes stopped`,
      value: ending.stoppedSeconds,
      unit: " s",
      aim: "at most 60 s",
      detail: `from the first DELETE until the last is stopped; all were accepted after ${ending.acceptedSeconds.toFixed(0)} s; the platform took ${ending.platformMsEach.toFixed(0)} ms of processor time for each`,
    },
    {
      what: `${sandboxes} sandboxes stopped and removed, of what the bare engine takes for as many`,
      value: ending.removedSeconds / bareSeconds,
      unit: "",
      aim: "at most 1.5",
      detail: `${ending.removedSeconds.toFixed(0)} s until the last container is removed against ${bareSeconds.toFixed(0)} s (${sample} in ${secondsOf(bareFirst.stopMs)} s without others, in ${secondsOf(bareLast.stopMs)} s beside them; ${concurrency} at once)`,
    },
  );
}

function reportFailure(what: string, error: unknown): void {
  report(`${what}: ${error instanceof Error ? error.stack : String(error)}`);
  process.exitCode = 1;
}

const secondsOf = (ms: number) => (ms / 1000).toFixed(1);

/** The default image with the least memory that an image may have. */
async function registerSmallImage(operator: Operator): Promise<string> {
  const { images } = expectStatus(await operator.get("/sandbox-images", operator.as), 200);
  const { image, readiness_port } = images.find(({ id }: { id: string }) => id === operator.defaultImageId);
  return operator.registerImage(image, { name: "small", readiness_port });
}

interface Started {
  id: string;
  /** What requests about it carry. */
  as: Operator["as"];
}

/** Provisions so many in turn of all workspaces, `from` the one after those that are there already. */
async function provision(o: {
  operator: Operator;
  workspaces: readonly string[];
  imageId: string;
  count: number;
  from?: number;
}) {
  const { operator, workspaces, imageId, count, from = 0 } = o;
  const started: Started[] = [];
  const readyMs: number[] = [performance.now()];
  await pLimit(concurrency).map(
    Array.from({ length: count }, (_, i) => workspaces[(from + i) % workspaces.length] ?? ""),
    async (workspace) => {
      const as = { ...operator.as, workspace };
      const { id } = expectStatus(await operator.post("/sandboxes/provision", { image_id: imageId }, as), 201);
      expectStatus(await operator.wait(id, as), 200);
      started.push({ id, as });
      readyMs.push(performance.now());
    },
  );
  return { started, readyMs };
}

/** From the first to the last of these times. */
const spanOf = (times: readonly number[]): number => (times.at(-1) ?? Number.NaN) - (times[0] ?? Number.NaN);

/**
 * The options with which the platform creates a sandbox's container, without names and labels, on the engine's own
 * network.
 */
async function readOptions(operator: Operator, imageId: string): Promise<ContainerCreateOptions> {
  const id = await operator.provisionReady(imageId);
  const { Image, Config, HostConfig } = await openTestEngine().getContainer(`sandgate-${id}`).inspect();
  expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
  // The sandboxes' networks may be full.
  return { Image, Healthcheck: Config.Healthcheck, HostConfig: { ...HostConfig, NetworkMode: "bridge" } };
}

/**
 * How long the engine takes to create and start some containers, and to stop and remove them, as many at once as the
 * platform.
 */
async function timeBare(options: ContainerCreateOptions): Promise<{ startMs: number; stopMs: number }> {
  const engine = openTestEngine();
  const ids: string[] = [];
  const startedAt = performance.now();
  try {
    await pLimit(concurrency).map([...Array(sample).keys()], async () => {
      const container = await engine.createContainer(options);
      ids.push(container.id);
      await container.start();
    });
    const runningAt = performance.now();
    await pLimit(concurrency).map(ids, async (id) => {
      await engine.getContainer(id).stop();
      await engine.getContainer(id).remove();
    });
    return { startMs: runningAt - startedAt, stopMs: performance.now() - runningAt };
  } finally {
    await pLimit(concurrency).map(ids, (id) => engine.getContainer(id).remove({ force: true }).catch(ignoreMissing));
  }
}

/** Removed already. */
function ignoreMissing(error: { statusCode?: number }): void {
  if (error.statusCode !== 404) throw error;
}

async function measureRestart(platform: TestPlatform, running: number) {
  await platform.terminate();
  const startedAt = performance.now();
  await platform.start();
  const readySeconds = (performance.now() - startedAt) / 1000;
  while (sum((await readMetric(platform, "sandgate_telemetry_followed_containers")).values()) < running)
    await delay(100);
  const followedSeconds = (performance.now() - startedAt) / 1000;
  // Two sweeps, which would find what was lost.
  if (running > 0) await delay(12_000);
  const states = await readMetric(platform, "sandgate_sandboxes");
  const ready = states.get('state="ready"') ?? 0;
  if (ready !== running) throw new Error(`${running} sandboxes were ready before the restart, ${ready} after it`);
  return { readySeconds, followedSeconds };
}

async function measureIdle(platform: TestPlatform) {
  const read = async () => ({
    atMs: performance.now(),
    platform: await processorMs(platform.process.child.pid),
    dockerd: await processorMsOf("dockerd"),
    containerd: await processorMsOf("containerd"),
    calls: await readMetric(platform, "sandgate_engine_calls_total"),
  });
  const sinceMs = Date.now();
  const before = await read();
  await delay(idleSeconds * 1000);
  const after = await read();
  const ms = after.atMs - before.atMs;
  const nameOf = (labels: string) => /call="([^"]*)"/.exec(labels)?.[1] ?? labels;
  const calls = ratesBetween(before.calls, after.calls, { ms, digits: 1, nameOf });
  return {
    sinceMs,
    residentMb: await residentMb(platform.process.child.pid),
    platformCpu: (after.platform - before.platform) / ms,
    dockerdCpu: (after.dockerd - before.dockerd) / ms,
    containerdCpu: (after.containerd - before.containerd) / ms,
    callsPerSecond: calls.total,
    calls: calls.text,
  };
}

/** The seconds between the samples of each sandbox since then. */
async function readGaps(operator: Operator, started: readonly Started[], sinceMs: number): Promise<number[]> {
  const gaps: number[] = [];
  const since = new Date(sinceMs).toISOString();
  const until = new Date(sinceMs + idleSeconds * 1000).toISOString();
  await pLimit(concurrency).map(started, async ({ id, as }) => {
    const path = `/sandbox/monitoring/${id}?include=metrics&since=${since}&until=${until}`;
    const { metrics } = expectStatus(await operator.get(path, as), 200);
    const times = metrics.map(({ timestamp }: { timestamp: string }) => Date.parse(timestamp) / 1000);
    if (times.length < 2) throw new Error(`sandbox ${id} has ${times.length} samples in ${idleSeconds} s`);
    for (let i = 1; i < times.length; i++) gaps.push(times[i] - times[i - 1]);
  });
  return gaps;
}

async function stopAll(operator: Operator, platform: TestPlatform, started: readonly Started[]) {
  const startedAt = performance.now();
  const secondsNow = () => (performance.now() - startedAt) / 1000;
  const unfinished = ["provisioning", "ready", "stopping"];
  let stoppedSeconds: number | undefined;
  const platformMs = await processorMs(platform.process.child.pid);
  await pLimit(concurrency).map(started, async ({ id, as }) => {
    expectStatus(await operator.delete(`/sandboxes/${id}`, as), 204);
  });
  const acceptedSeconds = secondsNow();
  for (;;) {
    const states = await readMetric(platform, "sandgate_sandboxes");
    const live = sum(unfinished.map((state) => states.get(`state="${state}"`) ?? 0));
    if (live === 0) stoppedSeconds ??= secondsNow();
    if (stoppedSeconds !== undefined && (await listContainers(platform)).length === 0) {
      const usedMs = (await processorMs(platform.process.child.pid)) - platformMs;
      const removedSeconds = secondsNow();
      return { acceptedSeconds, stoppedSeconds, removedSeconds, platformMsEach: usedMs / started.length };
    }
    if (secondsNow() > longestStopSeconds) throw new Error(`${live} sandboxes are not stopped yet`);
    await delay(250);
  }
}
