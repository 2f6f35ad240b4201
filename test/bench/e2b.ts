import { Sandbox } from "e2b";
import { openProgramHost } from "../e2b/program.ts";
import { type Figure, median, percentile } from "./figure.ts";

const commands = 300;
const reads = 300;
const transfers = 5;
const mebibyte = 1024 * 1024;
const largeBytes = 20 * mebibyte;

/** Commands and files by the npm package e2b, as programs written for it use them. */
export async function measureE2b(): Promise<Figure[]> {
  const host = await openProgramHost({ SANDGATE_LOG_LEVEL: "warn" });
  try {
    const sandbox = await Sandbox.create();
    const { files } = sandbox;
    const runs = await timesOf(commands, () => sandbox.commands.run("true"));
    await files.write("/tmp/small", "x".repeat(1024));
    const small = await timesOf(reads, () => files.read("/tmp/small"));
    const content = new Blob([Buffer.alloc(largeBytes, "x")]);
    const written = await timesOf(transfers, () => files.write("/tmp/large", content));
    const read = await timesOf(transfers, async () => {
      const { length } = await files.read("/tmp/large", { format: "bytes" });
      if (length !== largeBytes) throw new Error(`${length} bytes were read`);
    });
    return [
      { what: 'run("true") of E2B\'s SDK', value: median(runs), unit: " ms", aim: "at most 15", detail: spread(runs) },
      { what: "1 KiB read by it", value: median(small), unit: " ms", aim: "at most 10", detail: spread(small) },
      rateOf("20 MiB written by it", written),
      rateOf("20 MiB read by it", read),
    ];
  } finally {
    await host.close();
  }
}

/** The first few, which warm up, are left out. */
async function timesOf(count: number, work: () => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let index = -3; index < count; index++) {
    const startedAt = performance.now();
    await work();
    if (index >= 0) times.push(performance.now() - startedAt);
  }
  return times;
}

function rateOf(what: string, times: readonly number[]): Figure {
  const rates = times.map((ms) => (largeBytes / mebibyte) * (1000 / ms));
  return { what, value: median(rates), unit: " MiB/s", aim: "at least 40", detail: `median of ${times.length}` };
}

function spread(times: readonly number[]): string {
  return `p50 ${median(times).toFixed(1)} ms, p99 ${percentile(times, 0.99).toFixed(1)} ms of ${times.length}`;
}
