import type { MetricPoint } from "@sandgate/client";
import { named, toMoment, UsageError } from "../args.ts";
import { findSandbox } from "../context.ts";
import { bytes, printOne, write } from "../output.ts";
import { setUp } from "../setup.ts";

export async function logs(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, {
    follow: { type: "boolean", short: "f" },
    since: { type: "string" },
    stream: { type: "string" },
  });
  const [name = ""] = named(positionals, "SANDBOX");
  const { stream } = values;
  if (stream !== undefined && stream !== "stdout" && stream !== "stderr") {
    throw new UsageError(`--stream ${stream}: stdout or stderr is expected`);
  }
  const since = toMoment(values.since, "--since");
  const sandbox = await findSandbox(context, name);
  const lines = sandbox.logs({ follow: values.follow, since: since ?? sandbox.record.createdAt, stream, signal });
  for await (const line of lines) {
    await write(context.format === "json" ? `${JSON.stringify(line)}\n` : `${line.log}\n`);
  }
  return 0;
}

interface Stats {
  name: string;
  at: string;
  cpuCores: number | null;
  memoryBytes: number;
}

export async function stats(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, { watch: { type: "boolean" } });
  const [name = ""] = named(positionals, "SANDBOX");
  const sandbox = await findSandbox(context, name);
  const columns = [
    { title: "sandbox", of: (stats: Stats) => stats.name },
    { title: "at", of: (stats: Stats) => stats.at },
    { title: "cpu", of: ({ cpuCores }: Stats) => (cpuCores === null ? "-" : `${cpuCores.toFixed(2)} cores`) },
    { title: "memory", of: ({ memoryBytes }: Stats) => bytes(memoryBytes) },
  ];
  const o = { columns, name: (stats: Stats) => stats.name };
  if (!values.watch) {
    const [before, last] = await latest(await sandbox.metrics({ limit: 2, signal }));
    if (last) await printOne(toStats(sandbox.name, last, before), context.format, o);
    return 0;
  }
  let before: MetricPoint | undefined;
  for await (const point of sandbox.metrics({ follow: true, signal })) {
    const stats = toStats(sandbox.name, point, before);
    before = point;
    const cells = columns.map(({ of }) => of(stats));
    await write(context.format === "json" ? `${JSON.stringify(stats)}\n` : `${cells.join("   ")}\n`);
  }
  return 0;
}

async function latest(points: MetricPoint[]): Promise<[MetricPoint | undefined, MetricPoint | undefined]> {
  return [points.at(-2), points.at(-1)];
}

/** The API has CPU time, whose growth says how many cores were busy. */
function toStats(name: string, point: MetricPoint, before: MetricPoint | undefined): Stats {
  const seconds = before ? (Date.parse(point.timestamp) - Date.parse(before.timestamp)) / 1000 : 0;
  const cpuCores = before && seconds > 0 ? (point.cpuUsage - before.cpuUsage) / seconds : null;
  return { name, at: point.timestamp, cpuCores, memoryBytes: point.memoryUsage };
}
