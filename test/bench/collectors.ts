import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { env } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { startServiceHost } from "@sandgate/kit/process/host";
import { makeKeys, openTokenVerifier } from "@sandgate/kit/rpc/internal-keys";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { openLogs, openMetrics, type StoredChunk } from "@sandgate/telemetry/chunks";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { type Db, MongoClient } from "mongodb";
import { requireDistributed } from "../platform/distributed/platform.ts";
import { planPorts } from "../platform/distributed/ports.ts";
import { launchReplica, type Part } from "../platform/distributed/replica.ts";
import { type Servers, startServers } from "../platform/distributed/servers.ts";
import { commonSettings, replicaSettings } from "../platform/distributed/settings.ts";
import { createDelayMonitor } from "./delay-monitor.ts";
import { type Figure, median, percentile } from "./figure.ts";
import { processorMs, processorMsOf, residentMb } from "./process-figures.ts";
import { report } from "./report.ts";

/** What the process of the collectors is to do. */
export interface Load {
  nodes: number;
  podsOfNode: number;
  seconds: number;
  /** Between two lines of a pod. */
  lineMs: number;
}

/** What it has done. */
export interface Sent {
  /** Calls that were answered while lines were written. */
  calls: number;
  /** Lines and samples that these stored. */
  rows: number;
  /** Calls that failed, and were repeated. */
  failures: number;
  /** Lines that were written, and samples that were taken. */
  lines: number;
  samples: number;
  /** From each line's time to the answer that it is stored. */
  lateMs: number[];
}

const load: Load = {
  nodes: Number(env.SANDGATE_BENCH_COLLECTORS ?? 100),
  podsOfNode: Number(env.SANDGATE_BENCH_COLLECTOR_PODS ?? 100),
  seconds: Number(env.SANDGATE_BENCH_COLLECTOR_MINUTES ?? 5) * 60,
  lineMs: 10_000,
};
/** As many sandboxes as a workspace may have, spread over the nodes. */
const workspaces = Math.ceil((load.nodes * load.podsOfNode) / 100);
/** How many processes of telemetry the collectors spread their calls over. */
const replicas = Number(env.SANDGATE_BENCH_TELEMETRIES ?? 1);
const root = join(import.meta.dirname, "../..");
const nowhere = "http://127.0.0.1:9";
/** As in the image. */
const heapOption = "--max-semi-space-size=4";

/**
 * The telemetry service as a process of its own, on MongoDB and NATS, and the collectors of many nodes, in one other
 * process, that send it the lines and samples of simulated pods.
 */
export async function measureCollectors(): Promise<Figure[]> {
  if (!(await requireDistributed())) return [];
  await using closing = new AsyncDisposableStack();
  const { path: folder } = closing.use(await createTempFolder());
  const keysFolder = join(folder, "keys");
  await makeKeys(keysFolder);
  const servers = closing.use(await startServers(1));
  const sandbox = closing.adopt(await serveSandboxes(keysFolder), (host) => host.close());
  const telemetries = await startTelemetries({ folder, keysFolder, servers, sandboxUrl: sandbox.url });
  closing.defer(async () => void (await Promise.all(telemetries.map(({ replica }) => replica.terminate()))));
  await Promise.all(telemetries.map(({ replica }) => replica.ready()));
  const readMost = async (of: (pid: number | undefined) => Promise<number>) =>
    Math.max(...(await Promise.all(telemetries.map(({ replica }) => of(replica.process.child.pid)))));
  const readLate = () => Promise.all(telemetries.map(({ replica, monitor }) => monitor.read(replica)));
  const url = telemetries.map(({ replica }) => replica.url).join(",");

  const startedMs = performance.now();
  const program = join(import.meta.dirname, "collectors.child.ts");
  const collectors = fork(program, [url, keysFolder, JSON.stringify(load)], { execArgv: [heapOption] });
  closing.defer(() => void collectors.kill());
  await once(collectors, "message");
  const openedSeconds = (performance.now() - startedMs) / 1000;
  report(`${load.nodes} collectors have opened their sources after ${openedSeconds.toFixed(0)} s`);

  const read = async () => ({
    atMs: performance.now(),
    telemetry: await readMost(processorMs),
    collectors: await processorMs(collectors.pid),
    mongod: await processorMsOf("mongod"),
  });
  await readLate();
  const before = await read();
  const answer: Promise<[Sent]> = once(collectors, "message") as Promise<[Sent]>;
  collectors.send("begin");
  let mostMb = 0;
  while (performance.now() < before.atMs + load.seconds * 1000) {
    mostMb = Math.max(mostMb, await readMost(residentMb));
    await delay(1_000);
  }
  const after = await read();
  const late = (await readLate()).map((each) => each.late).reduce((a, b) => (a.p99 > b.p99 ? a : b));
  report("the pods write no more");
  const [sent] = await answer;
  report("all is stored, or the wait for it is over");
  for (const { replica } of telemetries) report(`telemetry says: ${replica.process.output().slice(-1_000)}`);

  const client = closing.adopt(new MongoClient(servers.mongo.url), (each) => each.close());
  const stored = await countStored(client.db("sandgate_telemetry"));
  const ms = after.atMs - before.atMs;
  const share = (of: "telemetry" | "collectors" | "mongod") => ((after[of] - before[of]) / ms) * 100;
  const pods = `${load.nodes} collectors of ${load.podsOfNode} pods`;
  const callsPerSecond = sent.calls / (ms / 1000);
  // What is not stored is late without an end.
  const unstored = Math.max(0, sent.lines - sent.lateMs.length);
  const lateMs = [...sent.lateMs, ...Array<number>(unstored).fill(Number.POSITIVE_INFINITY)];
  const seconds = (value: number) => (value / 1000).toFixed(2);
  const lost = sent.lines + sent.samples - stored.lines.distinct - stored.samples.distinct;
  const doubled = stored.lines.all - stored.lines.distinct + stored.samples.all - stored.samples.distinct;
  return [
    {
      what: `processor time of telemetry${replicas > 1 ? `, the busier of ${replicas}` : ""}, with ${pods}`,
      value: share("telemetry"),
      unit: " % of a core",
      aim: "below 100 %",
      detail: `${callsPerSecond.toFixed(0)} calls a second, ${sent.failures} failed, ${((replicas * (after.telemetry - before.telemetry)) / sent.calls).toFixed(2)} ms each; beside it all collectors together ${share("collectors").toFixed(0)} %, mongod ${share("mongod").toFixed(0)} %, ${((after.mongod - before.mongod) / sent.rows).toFixed(2)} ms for each of ${sent.rows} lines and samples`,
    },
    {
      what: "its resident memory",
      value: mostMb,
      unit: " MB",
      aim: "at most 768 MB",
      detail: `the most in ${load.seconds} s; all sources were opened within ${openedSeconds.toFixed(0)} s before`,
    },
    {
      what: "delay of its event loop, 99th percentile",
      value: late.p99,
      unit: " ms",
      aim: "below 50 ms",
      detail: `median ${late.p50.toFixed(1)} ms, longest ${late.max.toFixed(0)} ms`,
    },
    {
      what: "from a line written to a line stored, 99th percentile",
      value: percentile(lateMs, 0.99) / 1000,
      unit: " s",
      aim: "at most 5 s",
      detail: `median ${seconds(median(lateMs))} s, longest ${seconds(percentile(lateMs, 1 - 1 / lateMs.length))} s`,
    },
    {
      what: "lines and samples lost or doubled",
      value: lost + doubled,
      unit: "",
      aim: "0",
      detail: `${lost} lost, ${doubled} doubled, of ${sent.lines} lines and ${sent.samples} samples`,
    },
  ];
}

async function startTelemetries(o: { folder: string; keysFolder: string; servers: Servers; sandboxUrl: string }) {
  const { folder, keysFolder, servers } = o;
  const ports = await planPorts((part) => (part === "telemetry" ? replicas : 0));
  const urlsOf = (part: Part) => (part === "telemetry" ? ports.urlsOf(part) : [nowhere]);
  const admin = { username: "admin@localhost", password: "the operator of a bench" };
  const { host } = ports;
  const common = await commonSettings({ folder, keysFolder, host, admin, databaseUrl: servers.mongo.url, urlsOf });
  return Promise.all(
    ports.replicas.map(async (place) => {
      const own = join(folder, `${place.index}`);
      await mkdir(own);
      const adminSocket = join(own, "admin.sock");
      const monitor = createDelayMonitor(own);
      const settings = {
        ...common,
        ...replicaSettings(place, { adminSocket, keysFolder, natsUrl: servers.natsUrl }),
        ...monitor.settings,
        NODE_OPTIONS: `${monitor.settings.NODE_OPTIONS} ${heapOption} ${env.SANDGATE_BENCH_NODE_OPTIONS ?? ""}`,
        SANDGATE_RUNTIME: "kubernetes:",
        SANDGATE_SANDBOX_URL: o.sandboxUrl,
        SANDGATE_LOG_LEVEL: "warn",
      };
      const [url, adminUrl] = [`http://${host}:${place.port}`, `http://${host}:${place.adminPort}`];
      const replica = launchReplica({ part: "telemetry", codeRoot: root, url, adminUrl, adminSocket, env: settings });
      return { monitor, replica };
    }),
  );
}

/** The sandbox service, of which telemetry asks whose a sandbox is. */
async function serveSandboxes(keysFolder: string) {
  const logger = createLogger({ service: "sandbox", level: "warn" });
  return startServiceHost({
    service: "sandbox",
    host: "127.0.0.1",
    port: 0,
    verifier: await openTokenVerifier({ audience: "sandbox", file: join(keysFolder, "jwks.json"), logger }),
    routes: (router) =>
      router.service(SandboxService, {
        getSandboxWorkspace: async ({ sandboxId }) => ({
          workspaceId: `workspace-${Number(sandboxId.slice("sandbox-".length)) % workspaces}`,
        }),
      }),
    logger,
    metrics: createMetrics(),
  });
}

/** All rows in the database, and how many different ones: lines by their number, samples by their time. */
async function countStored(db: Db) {
  const counts = { lines: { all: 0, distinct: 0 }, samples: { all: 0, distinct: 0 } };
  const seen = new Set<string>();
  const count = (of: { all: number; distinct: number }, row: string) => {
    of.all += 1;
    if (!seen.has(row)) of.distinct += 1;
    seen.add(row);
  };
  const chunks = db.collection<StoredChunk & { sandboxId: string; kind: string }>("chunks");
  // Of one sandbox after the other, so that few rows are remembered.
  for await (const chunk of chunks.find({}, { sort: { sandboxId: 1 }, promoteBuffers: true, allowDiskUse: true })) {
    if (chunk.kind === "logs") {
      const open = await openLogs(chunk);
      for (let i = 0; i < open.timesNs.length; i++) {
        count(counts.lines, `${chunk.sandboxId} ${open.rowAt(i).log.split(" ", 1)[0]}`);
      }
    } else {
      for (const timeNs of (await openMetrics(chunk)).timesNs) count(counts.samples, `${chunk.sandboxId} ${timeNs}n`);
    }
  }
  return counts;
}
