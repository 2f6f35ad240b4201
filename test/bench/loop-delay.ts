// Imported by a process that is measured (NODE_OPTIONS=--import=…): how late its event loop is. At each SIGUSR2 it writes the
// figures since the last one, in ms, to the file that LOOP_DELAY_FILE names, and begins anew.
import { renameSync, writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { isMainThread } from "node:worker_threads";

const file = process.env.LOOP_DELAY_FILE;
const resolutionMs = 1;

if (isMainThread && file) {
  const delay = monitorEventLoopDelay({ resolution: resolutionMs });
  delay.enable();
  process.on("SIGUSR2", () => {
    const [p50, p99, max] = [delay.percentile(50), delay.percentile(99), delay.max].map((ns) => ns / 1e6);
    delay.reset();
    writeFileSync(`${file}.partial`, JSON.stringify({ p50, p99, max }));
    renameSync(`${file}.partial`, file);
  });
}
