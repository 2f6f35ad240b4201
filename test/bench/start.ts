import { readFile } from "node:fs/promises";
import { startPlatform } from "../support/platform.ts";
import type { Figure } from "./figure.ts";

/** The whole process on a data folder that exists: time until readyz answers, and memory then and after some work. */
export async function measureStart(): Promise<Figure[]> {
  const platform = await startPlatform();
  try {
    await platform.terminate();
    const startedAt = performance.now();
    await platform.start();
    const readySeconds = (performance.now() - startedAt) / 1000;
    const fresh = await residentMb(platform.process.child.pid);
    for (let i = 0; i < 2_000; i++) await (await fetch(`${platform.url}/workspaces`)).arrayBuffer();
    return [
      {
        what: "time to ready",
        value: readySeconds,
        unit: " s",
        aim: "at most 3 s",
        detail: "second start, no network",
      },
      {
        what: "memory",
        value: await residentMb(platform.process.child.pid),
        unit: " MB",
        aim: "at most 250 MB",
        detail: `resident set of the whole process after 2,000 requests; ${fresh.toFixed(0)} MB when ready`,
      },
    ];
  } finally {
    await platform.stop();
  }
}

async function residentMb(pid: number | undefined): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) / 1024;
}
