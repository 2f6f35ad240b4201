import { type Figure, median } from "./figure.ts";
import { startBenchPlatform } from "./platform.ts";
import { residentMb } from "./process-figures.ts";

const starts = 5;
const requests = 2_000;

/** The whole process on a data folder that exists: time until readyz answers, and memory then and after some work. */
export async function measureStart(): Promise<Figure[]> {
  const platform = await startBenchPlatform();
  const pid = () => platform.process.child.pid;
  try {
    const seconds: number[] = [];
    const fresh: number[] = [];
    for (let start = 0; start < starts; start++) {
      await platform.terminate();
      const startedAt = performance.now();
      await platform.start();
      seconds.push((performance.now() - startedAt) / 1000);
      fresh.push(await residentMb(pid()));
    }
    for (let i = 0; i < requests; i++) await (await fetch(`${platform.url}/workspaces`)).arrayBuffer();
    return [
      {
        what: "time to ready",
        value: median(seconds),
        unit: " s",
        aim: "at most 3 s",
        detail: `median of ${starts} starts on a folder that exists, without network`,
      },
      {
        what: "memory",
        value: median(fresh),
        unit: " MB",
        aim: "at most 250 MB",
        detail: `resident set of the whole process when ready; ${(await residentMb(pid())).toFixed(0)} MB after ${requests} requests`,
      },
    ];
  } finally {
    await platform.stop();
  }
}
