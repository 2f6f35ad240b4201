import { readdir, readFile, writeFile } from "node:fs/promises";
import { sum } from "./figure.ts";

/** The resident memory of a process, in MiB (proc(5), VmRSS). */
export function residentMb(pid: number | undefined): Promise<number> {
  return readStatusMb(pid, "VmRSS");
}

/** How much more resident memory a process had at most during some work than before it, in MiB (proc(5), VmHWM). */
export async function peakGrowthMb(pid: number | undefined, work: () => Promise<unknown>): Promise<number> {
  // Sets the peak to what is resident now.
  await writeFile(`/proc/${pid}/clear_refs`, "5");
  const before = await residentMb(pid);
  await work();
  return (await readStatusMb(pid, "VmHWM")) - before;
}

async function readStatusMb(pid: number | undefined, field: string): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`${field}:\\s+(\\d+) kB`).exec(status)?.[1]) / 1024;
}

/** The processor time that all threads of a process have used, in ms (proc(5), utime and stime, in ticks of 10 ms). */
export async function processorMs(pid: number | undefined): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  // The fields after the program's name, which may hold spaces.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** The processor time in ms of all processes of a program. */
export async function processorMsOf(program: string): Promise<number> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const used = pids.map(async (pid) => {
    // A process may end meanwhile.
    const name = await readFile(`/proc/${pid}/comm`, "utf8").catch(() => "");
    return name.startsWith(program) ? processorMs(Number(pid)).catch(() => 0) : 0;
  });
  return sum(await Promise.all(used));
}
