import { env } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import pLimit from "p-limit";
import type { TestPlatform } from "../../platform/local.ts";
import { createDelayMonitor, type DelayMonitor } from "../delay-monitor.ts";
import { type Figure, median, percentile, sum } from "../figure.ts";
import type { JsonClient } from "../json-client.ts";
import { ratesBetween, readMetric } from "../platform-metrics.ts";
import { processorMs, residentMb } from "../process-figures.ts";
import { report } from "../report.ts";
import { openWorkspaces } from "../sandboxes.ts";
import { type Bench, openOnBench, podsPath, readRecords } from "./bench.ts";

const perWorkspace = 100;
const perSecond = 10;
const churnSeconds = Number(env.SANDGATE_BENCH_CHURN_SECONDS ?? 600);
const idleSeconds = 60;
const idlePauseMs = 15_000;
const reads = 300;
/** How long pods whose records are done with may take to go. */
const removalMs = 60_000;
const listPath = `/sandboxes?limit=${perWorkspace}`;

interface Sandbox {
  id: string;
  workspace: string;
}

/** Sandboxes of a platform that come and go. */
export interface Live {
  /** Where its metrics are. */
  adminUrl(): string;
  api: JsonClient;
  workspaces: readonly string[];
  imageId: string;
  /** Accepted, and not stopped since; the oldest first. */
  sandboxes: Sandbox[];
  /** The ids of the records that are not done with. */
  readRecords(): Promise<string[]>;
}

/**
 * Memory, processor time and calls of the API server with that many live sandboxes, idle and while some go and others
 * come; what reading them takes; and what is there at the end, after the platform was killed in the middle.
 */
export async function measureLive(bench: Bench, count: number): Promise<Figure[]> {
  await using closing = new AsyncDisposableStack();
  const folder = closing.use(await createTempFolder());
  const monitor = createDelayMonitor(folder.path);
  const { platform, operator, api, client } = await openOnBench(bench, closing, monitor.settings);
  const workspaces = await openWorkspaces(operator, Math.ceil(count / perWorkspace));
  const imageId = await operator.registerImage(bench.image, { readiness_port: bench.port });
  const live: Live = {
    adminUrl: () => platform.adminUrl,
    api,
    workspaces,
    imageId,
    sandboxes: [],
    readRecords: async () => readRecords(platform),
  };
  const measured = { platform, monitor };
  const emptyMb = await residentMb(platform.process.child.pid);

  await provision(live, Math.min(perWorkspace, count));
  const few = await measureReads(live);
  const startedAt = performance.now();
  await provision(live, count - live.sandboxes.length);
  const fillSeconds = (performance.now() - startedAt) / 1000;
  report(`${count} are ready, ${((count - perWorkspace) / fillSeconds).toFixed(0)} a second`);

  await delay(idlePauseMs);
  const idle = await measureUse(measured, async () => {
    await delay(idleSeconds * 1000);
  });
  report(`idle: ${idle.text}`);
  const many = await measureReads(live);
  report(`reads: ${many.text}; among ${perWorkspace}: ${few.text}`);
  const churning = await measureUse(measured, () => churn(live, churnSeconds));
  report(`churn: ${churning.text}`);
  let readySeconds = Number.NaN;
  const failed = await churnThrough(live, async () => {
    await platform.kill();
    const killedAt = performance.now();
    await platform.start();
    readySeconds = (performance.now() - killedAt) / 1000;
  });
  const { max } = (await monitor.read(platform)).late;
  const restart = `ready again after ${readySeconds.toFixed(1)} s, its event loop late by ${max.toFixed(0)} ms at most since; ${failed} calls failed`;
  report(`killed in the middle: ${restart}`);
  const end = await compareEnds(live, client);
  report(`at the end: ${end.text}`);

  return [
    {
      what: `memory of the platform with ${count} idle sandboxes`,
      value: idle.residentMb,
      unit: " MB",
      aim: "at most 700 MB",
      detail: `resident set; ${emptyMb.toFixed(0)} MB without any, ${churning.residentMb.toFixed(0)} MB at the end of the churn`,
    },
    {
      what: `CPU of the platform with ${count} idle sandboxes`,
      value: idle.cpu * 100,
      unit: " % of a core",
      aim: "at most 15 %",
      detail: `${idle.late}; ${idle.calls.toFixed(2)} calls of the API server a second in all: ${idle.callText || "none"}`,
    },
    {
      what: `CPU of the platform while ${perSecond} a second go and as many come`,
      value: churning.cpu * 100,
      unit: " % of a core",
      aim: "at most 60 %",
      detail: `for ${churnSeconds} s, ${churning.late}; ${churning.result.failed} of ${churning.result.calls} calls failed; ${(churning.calls / perSecond).toFixed(2)} calls of the API server for each: ${churning.callText}`,
    },
    {
      what: `a list of ${perWorkspace} among ${count} live sandboxes, of the time among ${perWorkspace}`,
      value: many.listMs.median / few.listMs.median,
      unit: "",
      aim: "at most 1.2",
      detail: `${many.text}; among ${perWorkspace}: ${few.text}; while others come and go: ${churning.result.text}`,
    },
    {
      what: "killed in the middle of the churn: left over or missing at the end",
      value: end.wrong,
      unit: "",
      aim: "0",
      detail: `${end.text}; ${restart}`,
    },
  ];
}

/** Provisions so many in turn of all workspaces, and waits until all are ready. */
export async function provision(live: Live, count: number): Promise<void> {
  const next = Array.from({ length: count }, (_, index) => live.sandboxes.length + index);
  // Whole workspaces, one after another.
  await pLimit(32).map(next, (index) =>
    provisionOne(live, live.workspaces[Math.floor(index / perWorkspace) % live.workspaces.length] ?? ""),
  );
  await untilSettled(live);
}

async function provisionOne({ api, imageId, sandboxes }: Live, workspace: string): Promise<void> {
  const { id } = await api.call("POST", "/sandboxes/provision", {
    body: { image_id: imageId },
    headers: { "x-workspace-id": workspace },
  });
  sandboxes.push({ id, workspace });
}

async function stopOne({ api }: Live, { id, workspace }: Sandbox): Promise<void> {
  await api.call("DELETE", `/sandboxes/${id}`, { headers: { "x-workspace-id": workspace }, allowed: [200, 204] });
}

/** Until each record that is not done with is ready. */
async function untilSettled(live: Live): Promise<void> {
  for (;;) {
    const states = await readMetric({ adminUrl: live.adminUrl() }, "sandgate_sandboxes");
    if (sum(states.values()) === (states.get('state="ready"') ?? 0)) return;
    await delay(250);
  }
}

async function measureReads(live: Live) {
  const lists: number[] = [];
  const gets: number[] = [];
  for (let round = 0; round < reads; round++) {
    const sandbox = live.sandboxes[(round * 7919) % live.sandboxes.length];
    if (!sandbox) continue;
    lists.push(await timeOf(live, sandbox, listPath));
    gets.push(await timeOf(live, sandbox, `/sandboxes/${sandbox.id}`));
  }
  return summarize(lists, gets);
}

function summarize(lists: readonly number[], gets: readonly number[]) {
  const figuresOf = (values: readonly number[]) => ({ median: median(values), p99: percentile(values, 0.99) });
  const [listMs, getMs] = [figuresOf(lists), figuresOf(gets)];
  const show = ({ median: half, p99 }: { median: number; p99: number }) =>
    `${half.toFixed(1)} ms (99 %: ${p99.toFixed(1)})`;
  return { listMs, getMs, text: `list ${show(listMs)}, read ${show(getMs)}` };
}

async function timeOf({ api }: Live, { workspace }: Sandbox, path: string): Promise<number> {
  const startedAt = performance.now();
  await api.call("GET", path, { headers: { "x-workspace-id": workspace } });
  return performance.now() - startedAt;
}

/** What the platform's process uses while some work goes on. */
async function measureUse<T>(
  { platform, monitor }: { platform: TestPlatform; monitor: DelayMonitor<"late"> },
  work: () => Promise<T>,
) {
  const read = async () => ({
    atMs: performance.now(),
    cpuMs: await processorMs(platform.process.child.pid),
    calls: await readMetric(platform, "sandgate_kubernetes_calls_total"),
  });
  const before = await read();
  await monitor.read(platform);
  const result = await work();
  const { late } = await monitor.read(platform);
  const after = await read();
  const ms = after.atMs - before.atMs;
  const nameOf = (labels: string) => {
    const [, method, resource, status] = /method="(.*)",resource="(.*)",status="(.*)"/.exec(labels) ?? [];
    return `${method} ${resource} ${status}`;
  };
  const { total: calls, text: callText } = ratesBetween(before.calls, after.calls, { ms, digits: 2, nameOf });
  const use = {
    result,
    late: `event loop late by ${late.p99.toFixed(0)} ms (99 %), ${late.max.toFixed(0)} ms at most`,
    cpu: (after.cpuMs - before.cpuMs) / ms,
    residentMb: await residentMb(platform.process.child.pid),
    calls,
    callText,
  };
  const text = `${(use.cpu * 100).toFixed(1)} % of a core, ${use.residentMb.toFixed(0)} MB, ${use.late}, calls a second: ${callText}`;
  return { ...use, text };
}

/**
 * Each tick stops the oldest and provisions another; each second some reads besides. Calls that fail are counted, and
 * stops are made again.
 */
async function churn(live: Live, seconds: number) {
  const running = new Set<Promise<void>>();
  const lists: number[] = [];
  const gets: number[] = [];
  let calls = 0;
  let failed = 0;
  const attempt = async (work: () => Promise<void>) => {
    calls += 1;
    await work().catch(() => {
      failed += 1;
    });
  };
  const replaceOldest = async (reading: boolean) => {
    const oldest = live.sandboxes.shift();
    if (!oldest) return;
    await attempt(async () => {
      await stopOne(live, oldest).catch((error: unknown) => {
        live.sandboxes.unshift(oldest);
        throw error;
      });
    });
    await attempt(() => provisionOne(live, oldest.workspace));
    const [sandbox] = live.sandboxes;
    if (!sandbox || !reading) return;
    await attempt(async () => {
      lists.push(await timeOf(live, sandbox, listPath));
      gets.push(await timeOf(live, sandbox, `/sandboxes/${sandbox.id}`));
    });
  };
  const startedAt = performance.now();
  for (let tick = 0; tick < seconds * perSecond; tick++) {
    await delay(Math.max(0, startedAt + (tick * 1000) / perSecond - performance.now()));
    const work = replaceOldest(tick % perSecond === 0).finally(() => running.delete(work));
    running.add(work);
  }
  await Promise.all(running);
  return { calls, failed, text: summarize(lists, gets).text };
}

/** Some come and go, and something happens in the middle. Answers how many calls failed. */
export async function churnThrough(live: Live, happen: () => Promise<void>): Promise<number> {
  const seconds = Math.min(churnSeconds, 60);
  const churning = churn(live, seconds);
  await delay(seconds * 500);
  await happen();
  return (await churning).failed;
}

/** Records that are live, and pods, against what was accepted and not stopped, once what is being removed is gone. */
export async function compareEnds(live: Live, client: JsonClient) {
  await untilSettled(live);
  const records = new Set(await live.readRecords());
  const accepted = live.sandboxes.map(({ id }) => id);
  const newest = await client.call("GET", `${podsPath}/sandgate-${accepted.at(-1)}`);
  const startedAt = performance.now();
  let pods: Set<string>;
  let leftOver: number;
  do {
    pods = new Set(await listPods(client, newest));
    leftOver = [...pods].filter((id) => !records.has(id)).length;
  } while (leftOver > 0 && performance.now() - startedAt < removalMs);
  const lost = accepted.filter((id) => !records.has(id)).length;
  const missing = [...records].filter((id) => !pods.has(id)).length;
  // Sandboxes of calls that were accepted, but cut off before they were answered.
  const unanswered = records.size - (accepted.length - lost);
  return {
    wrong: lost + missing + leftOver,
    text: `${accepted.length} accepted and not stopped, of which ${lost} have no live record; ${records.size} live records, of which ${missing} have no pod and ${unanswered} are of calls that were cut off; ${pods.size} pods, of which ${leftOver} have no live record`,
  };
}

/** The ids of the sandboxes that have pods in the same installation as this one. */
async function listPods(client: JsonClient, pod: { metadata: { labels: Record<string, string> } }): Promise<string[]> {
  const installation = pod.metadata.labels["sandgate.io/installation"];
  const query = new URLSearchParams({ limit: "500", labelSelector: `sandgate.io/installation=${installation}` });
  const ids: string[] = [];
  for (;;) {
    const { items, metadata } = await client.call("GET", `${podsPath}?${query}`);
    for (const each of items) ids.push(each.metadata.labels["sandgate.io/sandbox-id"]);
    if (!metadata.continue) return ids;
    query.set("continue", metadata.continue);
  }
}
