import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { openOperator } from "../platform/operator.ts";
import { type Figure, median } from "./figure.ts";
import { connections, load } from "./load.ts";
import { startBenchPlatform } from "./platform.ts";
import { processorMs } from "./process-figures.ts";

const rounds = 7;
const seconds = 3;
/** Until then V8 still compiles what a request runs through, of which the platform has more than a bare route. */
const warmUpRequests = 30_000;

interface Load {
  perSecond: number;
  /** Processor time of the server for each request. */
  micros: number;
}

/** GET of a small resource through authentication, limits, membership and one service, against a bare route of the same bytes. */
export async function measureRequests(): Promise<Figure[]> {
  const platform = await startBenchPlatform();
  try {
    const operator = await openOperator(platform);
    const token = await operator.openSession();
    const path = `/workspaces/${operator.as.workspace}`;
    const { text } = await operator.get(path, { token });
    const bare = spawn(process.execPath, [fileURLToPath(new URL("./bare-server.ts", import.meta.url)), text]);
    try {
      const [line] = await once(bare.stdout, "data");
      const targets = [
        { url: platform.url + path, pid: platform.process.child.pid, loads: [] as Load[] },
        { url: `${String(line).trim()}${path}`, pid: bare.pid, loads: [] as Load[] },
      ] as const;
      for (const { url } of targets) await load(url, token, { amount: warmUpRequests });
      for (let round = 0; round < rounds; round++) {
        for (const { url, pid, loads } of targets) {
          const before = await processorMs(pid);
          const { requests } = await load(url, token, { duration: seconds });
          const micros = ((await processorMs(pid)) - before) * 1000;
          loads.push({ perSecond: requests.average, micros: micros / requests.total });
        }
      }
      const [ours, theirs] = [targets[0].loads, targets[1].loads];
      const ratios = (of: (ours: Load, theirs: Load) => number) =>
        median(ours.map((load, round) => of(load, theirs[round] ?? { perSecond: Number.NaN, micros: Number.NaN })));
      const medians = (of: (load: Load) => number) =>
        [ours, theirs].map((loads) => median(loads.map(of)).toFixed(0)).join(" against ");
      return [
        {
          what: "GET of a small resource, of a bare Fastify route's rate",
          value: ratios((platform, route) => platform.perSecond / route.perSecond),
          unit: "",
          aim: "at least 0.45",
          detail: `${medians(({ perSecond }) => perSecond)} requests/s, ${medians(({ micros }) => micros)} us of processor time each; ${connections} connections, median of ${rounds} rounds of ${seconds} s`,
        },
      ];
    } finally {
      bare.kill();
    }
  } finally {
    await platform.stop();
  }
}
