import { once } from "node:events";
import { join } from "node:path";
import { openTestEngine } from "@sandgate/test-support/images";
import { type RunningProcess, startProcess } from "@sandgate/test-support/process";
import pLimit from "p-limit";
import { expectStatus } from "../conformance/client.ts";
import { createPreviewClient, type PreviewClient } from "../conformance/preview-client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { type Figure, median, percentile } from "./figure.ts";

/** Each takes 200 requests a second. */
const previews = 8;
const requests = 800;
// The server has room for nine connections that wait.
const atOnce = 6;
const single = 200;

/** Requests over previews, against a bare reverse proxy of Node.js before the same server. */
export async function measurePreviews(): Promise<Figure[]> {
  const platform = await startPlatform({ settings: { SANDGATE_LOG_LEVEL: "warn" } });
  let bare: RunningProcess | undefined;
  try {
    const operator = await openOperator(platform);
    const sandboxId = await operator.provisionReady(operator.defaultImageId);
    const clients = await makePreviews(platform, operator, sandboxId);
    bare = await startBareProxy(sandboxId);
    const url = /http:\S+/.exec(bare.output())?.[0] ?? "";
    const direct = createPreviewClient({ via: url, url });
    await measureRate([direct], 100);
    await measureRate(clients, 100);
    // One after the other, twice, so that both meet the same machine.
    const ours: number[] = [];
    const theirs: number[] = [];
    for (let round = 0; round < 2; round++) {
      ours.push(await measureRate(clients, requests));
      theirs.push(await measureRate([direct], requests));
    }
    const times = { ours: await timesOf(clients), bare: await timesOf([direct]) };
    const added = median(times.ours) - median(times.bare);
    const spread = (all: number[]) => `p50 ${median(all).toFixed(1)} ms, p99 ${percentile(all, 0.99).toFixed(1)} ms`;
    return [
      {
        what: "requests over previews",
        value: median(ours),
        unit: "/s",
        aim: "at least 440",
        detail: `${requests}, ${atOnce} at once, over ${previews} previews`,
      },
      {
        what: "requests over previews, of a bare proxy's",
        value: median(ours) / median(theirs),
        unit: "",
        aim: "at least 0.25",
        detail: `the proxy alone: ${median(theirs).toFixed(0)}/s`,
      },
      {
        what: "first byte over a preview, beyond a bare proxy's",
        value: added,
        unit: " ms",
        aim: "at most 5",
        detail: `preview: ${spread(times.ours)}; bare proxy: ${spread(times.bare)}`,
      },
    ];
  } finally {
    await bare?.stop();
    await platform.stop();
  }
}

function makePreviews({ url: via }: TestPlatform, operator: Operator, sandboxId: string): Promise<PreviewClient[]> {
  const make = async () => {
    const made = await operator.post(`/sandboxes/${sandboxId}/ports`, { port: 8080, public: true }, operator.as);
    return createPreviewClient({ via, url: expectStatus(made, 201).url });
  };
  return Promise.all(Array.from({ length: previews }, make));
}

/** The proxy in a process of its own, as the platform is. */
async function startBareProxy(sandboxId: string): Promise<RunningProcess> {
  const { NetworkSettings } = await openTestEngine().getContainer(`sandgate-${sandboxId}`).inspect();
  const address = Object.values(NetworkSettings.Networks)[0]?.IPAddress ?? "";
  const child = join(import.meta.dirname, "bare-proxy.child.ts");
  const started = startProcess(process.execPath, [child, address, "8080"], {
    cwd: import.meta.dirname,
    env: process.env,
  });
  while (!started.output().includes("http:")) await new Promise((resolve) => setTimeout(resolve, 20));
  return started;
}

async function measureRate(clients: readonly PreviewClient[], count: number): Promise<number> {
  const limit = pLimit(atOnce);
  const startedAt = performance.now();
  const ask = async (index: number) => {
    const { status } = (await clients[index % clients.length]?.get()) ?? {};
    if (status !== 200) throw new Error(`a request was answered ${status}`);
  };
  await Promise.all(Array.from({ length: count }, (_, index) => limit(() => ask(index))));
  return (count * 1000) / (performance.now() - startedAt);
}

async function timesOf(clients: readonly PreviewClient[]): Promise<number[]> {
  const times: number[] = [];
  for (let index = 0; index < single; index++) {
    const startedAt = performance.now();
    const answer = await clients[index % clients.length]?.open("GET", "/");
    times.push(performance.now() - startedAt);
    answer?.resume();
    if (answer) await once(answer, "end");
  }
  return times;
}
