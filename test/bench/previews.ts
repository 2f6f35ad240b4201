import { once } from "node:events";
import { join } from "node:path";
import { buildFolderImage, openTestEngine, type TestImage } from "@sandgate/test-support/images";
import { type RunningProcess, startProcess } from "@sandgate/test-support/process";
import { addProgram } from "@sandgate/test-support/program-images";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import pLimit from "p-limit";
import { expectStatus } from "../conformance/client.ts";
import { createPreviewClient, type PreviewClient } from "../conformance/preview-client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { type Figure, median, percentile } from "./figure.ts";

/** Each takes 200 requests a second. */
const previews = 8;
const requests = 800;
// The closing server has room for nine connections that wait.
const atOnce = 6;
const single = 200;
const rounds = 3;

/** A server in a sandbox, and how figures call it. */
interface Server {
  what: string;
  imageId: string;
  port: number;
  /** Of the rate over previews. */
  aim: string;
}

/** Requests over previews, against a bare reverse proxy of Node.js before the same server. */
export async function measurePreviews(): Promise<Figure[]> {
  await using closing = new AsyncDisposableStack();
  const settings = { SANDGATE_LOG_LEVEL: "warn" };
  const platform = closing.adopt(await startPlatform({ settings }), (each) => each.stop());
  const operator = await openOperator(platform);
  const keeping = closing.adopt(await buildKeepingServer(), (each) => each.remove());
  const servers: Server[] = [
    { what: "closes each connection", imageId: operator.defaultImageId, port: 8080, aim: "at least 440" },
    { what: "keeps connections", imageId: await operator.registerImage(keeping.reference), port: 3000, aim: "none" },
  ];
  const figures: Figure[] = [];
  for (const server of servers) figures.push(...(await measureServer(platform, operator, server)));
  return figures;
}

/** An image of a server of Node.js. */
async function buildKeepingServer(): Promise<TestImage> {
  await using folder = await createTempFolder();
  await addProgram(folder.path, process.execPath, "/bin/node");
  const program = 'require("node:http").createServer((_, response) => response.end("hello")).listen(3000)';
  return await buildFolderImage(openTestEngine(), folder.path, { command: ["/bin/node", "--eval", program] });
}

async function measureServer(platform: TestPlatform, operator: Operator, server: Server): Promise<Figure[]> {
  const { what, port } = server;
  const sandboxId = await operator.provisionReady(server.imageId);
  const clients = await makePreviews(platform, operator, sandboxId, port);
  const bare = await startBareProxy(sandboxId, port);
  try {
    const url = /http:\S+/.exec(bare.output())?.[0] ?? "";
    const direct = createPreviewClient({ via: url, url });
    // In turn, so that both meet the same machine; the first round warms up.
    const ours: number[] = [];
    const theirs: number[] = [];
    for (let round = 0; round <= rounds; round++) {
      ours.push(await measureRate(clients, requests));
      theirs.push(await measureRate([direct], requests));
    }
    const [rate, bareRate] = [median(ours.slice(1)), median(theirs.slice(1))];
    const times = { ours: await timesOf(clients), bare: await timesOf([direct]) };
    const spread = (all: number[]) => `p50 ${median(all).toFixed(1)} ms, p99 ${percentile(all, 0.99).toFixed(1)} ms`;
    return [
      {
        what: `requests over previews to a server that ${what}`,
        value: rate,
        unit: "/s",
        aim: server.aim,
        detail: `${requests}, ${atOnce} at once, over ${previews} previews`,
      },
      {
        what: "the same, of a bare proxy's",
        value: rate / bareRate,
        unit: "",
        aim: "at least 0.5",
        detail: `the proxy alone: ${bareRate.toFixed(0)}/s`,
      },
      {
        what: "first byte of it, beyond a bare proxy's",
        value: median(times.ours) - median(times.bare),
        unit: " ms",
        aim: "at most 5",
        detail: `preview: ${spread(times.ours)}; bare proxy: ${spread(times.bare)}`,
      },
    ];
  } finally {
    await bare.stop();
  }
}

function makePreviews(
  { url: via }: TestPlatform,
  operator: Operator,
  sandboxId: string,
  port: number,
): Promise<PreviewClient[]> {
  const make = async () => {
    const made = await operator.post(`/sandboxes/${sandboxId}/ports`, { port, public: true }, operator.as);
    return createPreviewClient({ via, url: expectStatus(made, 201).url });
  };
  return Promise.all(Array.from({ length: previews }, make));
}

/** The proxy in a process of its own, as the platform is. */
async function startBareProxy(sandboxId: string, port: number): Promise<RunningProcess> {
  const { NetworkSettings } = await openTestEngine().getContainer(`sandgate-${sandboxId}`).inspect();
  const address = Object.values(NetworkSettings.Networks)[0]?.IPAddress ?? "";
  const child = join(import.meta.dirname, "bare-proxy.child.ts");
  const started = startProcess(process.execPath, [child, address, String(port)], {
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
