// Imported by a process that is measured (NODE_OPTIONS=--import=…): how late its event loop is. At each SIGUSR2 it
// writes the figures since the last one, in ms, to the file that LOOP_DELAY_FILE names, and begins anew. With
// LOOP_DELAY_AT_WORK it looks less often, and also measures how much of the delay its thread was at work, which other
// programs on the machine don't change.
import { renameSync, writeFileSync } from "node:fs";
import { createHistogram, monitorEventLoopDelay } from "node:perf_hooks";
import { isMainThread } from "node:worker_threads";

interface Figures {
  percentile(percentile: number): number;
  readonly max: number;
  reset(): void;
}

const file = process.env.LOOP_DELAY_FILE;
const resolutionMs = 1;
const atWorkResolutionMs = 10;

/** Both histograms in ns. */
function measureAtWork(): { late: Figures; atWork: Figures } {
  const [late, atWork] = [createHistogram(), createHistogram()];
  let [lastMs, used] = [performance.now(), process.threadCpuUsage()];
  setInterval(() => {
    const nowMs = performance.now();
    const since = process.threadCpuUsage(used);
    const lateNs = Math.max(0, nowMs - lastMs - atWorkResolutionMs) * 1e6;
    late.record(1 + Math.round(lateNs));
    atWork.record(1 + Math.round(Math.min(lateNs, (since.user + since.system) * 1e3)));
    [lastMs, used] = [nowMs, process.threadCpuUsage()];
  }, atWorkResolutionMs).unref();
  return { late, atWork };
}

function measureLate(): { late: Figures } {
  const late = monitorEventLoopDelay({ resolution: resolutionMs });
  late.enable();
  return { late };
}

if (isMainThread && file) {
  const measured: { late: Figures; atWork?: Figures } = process.env.LOOP_DELAY_AT_WORK
    ? measureAtWork()
    : measureLate();
  process.on("SIGUSR2", () => {
    const written = Object.entries(measured).map(([name, figures]) => {
      const [p50, p99, max] = [figures.percentile(50), figures.percentile(99), figures.max].map((ns) => ns / 1e6);
      figures.reset();
      return [name, { p50, p99, max }];
    });
    writeFileSync(`${file}.partial`, JSON.stringify(Object.fromEntries(written)));
    renameSync(`${file}.partial`, file);
  });
}
