import { readFile } from "node:fs/promises";
import { Agent, request } from "node:https";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { createStateLog, type Logger } from "@sandgate/kit/base/logging";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { fromMillis, type MetricRow } from "../domain/rows.ts";

const path = "/metrics/resource";
const timeoutMs = 10_000;
/** Many times what the most pods of a node take. */
export const maxBytes = 16 * mebibyte;
/** One answer is good for all containers that are sampled meanwhile. The kubelet itself measures every 10 s or so. */
const maxAgeMs = 2_000;

export interface KubeletOptions {
  /** https://host:10250, the kubelet of this node. */
  url: string;
  /** A service account's token with the right `nodes/metrics`, read again for each call as it changes. */
  tokenFile: string;
  /** The certificates that the kubelet's is checked with; undefined: it isn't checked. */
  caFile: string | undefined;
}

/** The figures of the containers that run on this node. */
export interface KubeletSamples {
  /** Undefined while the container has just started, or once it has ended. Throws when the kubelet can't be asked. */
  find(container: ContainerName, signal: AbortSignal): Promise<MetricRow | undefined>;
  /** Why the kubelet couldn't be asked the last time; undefined: it could. */
  problem(): string | undefined;
}

export interface ContainerName {
  namespace: string;
  pod: string;
  container: string;
}

/** The figures of this node's containers, from its kubelet. */
export function openKubeletSamples(o: KubeletOptions & { logger: Logger; metrics: Metrics }): KubeletSamples {
  const agent = new Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: o.caFile !== undefined });

  async function ask(): Promise<string> {
    const [token, ca] = await Promise.all([
      readFile(o.tokenFile, "utf8"),
      o.caFile === undefined ? undefined : readFile(o.caFile, "utf8"),
    ]);
    return new Promise<string>((resolve, reject) => {
      const headers = { authorization: `Bearer ${token.trim()}` };
      const options = { agent, headers, signal: AbortSignal.timeout(timeoutMs), ...(ca && { ca }) };
      const sent = request(new URL(path, o.url), options, (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on("error", reject).on("data", (chunk: Buffer) => {
          chunks.push(chunk);
          bytes += chunk.length;
          if (bytes > maxBytes) response.destroy(new Error(`the kubelet answered with more than ${maxBytes} bytes`));
        });
        response.on("end", () => {
          if (response.statusCode === 200) resolve(Buffer.concat(chunks).toString("utf8"));
          else reject(new Error(`the kubelet answered ${response.statusCode} for ${path}`));
        });
      });
      sent.on("error", reject).end();
    });
  }

  return createSamples({ ask, count: countSamples(o.metrics, "kubelet"), logger: o.logger });
}

/** Returns what counts a sample from there. */
export function countSamples(metrics: Metrics, source: string): () => void {
  const samples = counter(metrics, {
    name: "sandgate_telemetry_samples_total",
    help: "Samples of CPU and memory that were taken, by where they came from",
    labelNames: ["source"],
  });
  return () => samples.inc({ source });
}

/**
 * The figures of a node's containers, where `ask` gets them all in the Prometheus text format. Logs once when that fails,
 * and once when it succeeds again.
 */
export function createSamples({
  ask,
  count,
  logger,
}: {
  ask(): Promise<string>;
  count(): void;
  logger: Logger;
}): KubeletSamples {
  const tellProblem = createStateLog(logger, "the kubelet's figures can't be had; will retry", {
    over: "the kubelet gives figures again",
  });
  let problem: string | undefined;

  async function read(): Promise<Map<string, MetricRow>> {
    try {
      const found = parseSamples(await ask());
      problem = undefined;
      tellProblem(undefined);
      return found;
    } catch (error) {
      problem = `the kubelet's figures can't be had: ${messageOf(error)}`;
      tellProblem(problem, { err: error });
      throw error;
    }
  }

  let asked: { atMs: number; found: Promise<Map<string, MetricRow>> } | undefined;
  return {
    async find(container, signal) {
      const nowMs = performance.now();
      if (!asked || nowMs - asked.atMs > maxAgeMs) {
        asked = { atMs: nowMs, found: read() };
      }
      const row = (await asked.found).get(keyOf(container));
      signal.throwIfAborted();
      if (row) count();
      return row;
    },
    problem: () => problem,
  };
}

function keyOf({ namespace, pod, container }: ContainerName): string {
  return `${namespace}/${pod}/${container}`;
}

/** The containers' CPU time and working set in the Prometheus text format, by `keyOf`; only those that have both. */
export function parseSamples(text: string): Map<string, MetricRow> {
  const pattern = /^container_(cpu_usage_seconds_total|memory_working_set_bytes)\{([^}]*)\} (\S+) (\d+)$/;
  const cpu = new Map<string, { timeNs: bigint; cpuSeconds: number }>();
  const memory = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [, name, labels = "", value, timeMs] = pattern.exec(line) ?? [];
    const found = new Map(
      [...labels.matchAll(/(?:^|,)(\w+)="([^"]*)"/g)].map(([, label, content]) => [label, content]),
    );
    const [namespace, pod, container] = ["namespace", "pod", "container"].map((label) => found.get(label));
    if (namespace === undefined || pod === undefined || container === undefined) continue;
    const key = keyOf({ namespace, pod, container });
    if (name === "memory_working_set_bytes") memory.set(key, Number(value));
    else cpu.set(key, { timeNs: fromMillis(Number(timeMs)), cpuSeconds: Number(value) });
  }
  const rows = new Map<string, MetricRow>();
  for (const [key, sample] of cpu) {
    const memoryBytes = memory.get(key);
    if (memoryBytes !== undefined) rows.set(key, { ...sample, memoryBytes });
  }
  return rows;
}
