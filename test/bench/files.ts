import { execFile } from "node:child_process";
import { join } from "node:path";
import { setInterval as every } from "node:timers/promises";
import { promisify } from "node:util";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import type { TestPlatform } from "../platform/local.ts";
import type { Operator } from "../platform/operator.ts";
import { compareRounds, type Figure, median } from "./figure.ts";
import { residentMb } from "./process-figures.ts";

const run = promisify(execFile);
const sizeMb = 1024;
const rounds = 3;
const sampleMs = 50;

/** A large file out of a sandbox and into it over the public API, against `docker cp` of the same. */
export async function measureFiles(platform: TestPlatform, operator: Operator, sandboxId: string): Promise<Figure[]> {
  await using folder = await createTempFolder();
  const file = join(folder.path, "file");
  const container = `sandgate-${sandboxId}`;
  const url = `${platform.url}/sandboxes/${sandboxId}/files?path=`;
  const { token, workspace } = operator.as;
  const curl = ["-sSf", "-H", `Authorization: Bearer ${token}`, "-H", `X-Workspace-Id: ${workspace}`];
  const runs = {
    cpInto: () => run("docker", ["cp", file, `${container}:/theirs`]),
    into: () => run("curl", [...curl, "-T", file, `${url}/ours`]),
    cpOut: () => run("docker", ["cp", `${container}:/ours`, `${file}.theirs`]),
    out: () => run("curl", [...curl, "-o", `${file}.ours`, `${url}/theirs`]),
  };
  await run("sh", ["-c", `head -c ${sizeMb}M /dev/urandom > ${file}`]);
  await runs.into();
  const memory = watchMemory(platform);
  const rates = { cpInto: [] as number[], into: [] as number[], cpOut: [] as number[], out: [] as number[] };
  // In turn, so that all meet the same machine.
  for (let round = 0; round < rounds; round++) {
    for (const name of ["cpInto", "into", "cpOut", "out"] as const) {
      const startedAt = performance.now();
      await runs[name]();
      rates[name].push((sizeMb * 1000) / (performance.now() - startedAt));
    }
  }
  const grownMb = await memory.stop();
  await run("cmp", [file, `${file}.ours`]);
  await run("cmp", [file, `${file}.theirs`]);
  return [
    ...toFigures("out of", rates.out, rates.cpOut, 100),
    ...toFigures("into", rates.into, rates.cpInto, 60),
    {
      what: "growth of the platform's memory while files pass",
      value: grownMb,
      unit: " MiB",
      aim: "below 32",
      detail: "resident, at most",
    },
  ];
}

function toFigures(what: string, ours: readonly number[], theirs: readonly number[], aim: number): Figure[] {
  const { value, span } = compareRounds(ours, theirs);
  const name = `file of ${sizeMb} MiB ${what} a sandbox`;
  return [
    { what: name, value: median(ours), unit: " MiB/s", aim: `at least ${aim}`, detail: `${ours.length} rounds` },
    {
      what: `${name}, of docker cp's rate`,
      value,
      unit: "",
      aim: "at least 0.8",
      detail: `docker cp: ${median(theirs).toFixed(0)} MiB/s; ${span}`,
    },
  ];
}

/** How much the platform's memory grows from now on, at most, until it is stopped. */
function watchMemory({ process: { child } }: TestPlatform) {
  const done = new AbortController();
  const watch = async () => {
    const before = await residentMb(child.pid);
    let most = before;
    try {
      for await (const _ of every(sampleMs, undefined, { signal: done.signal }))
        most = Math.max(most, await residentMb(child.pid));
    } catch (error) {
      if (!done.signal.aborted) throw error;
    }
    return most - before;
  };
  const watching = watch();
  return {
    stop: () => {
      done.abort();
      return watching;
    },
  };
}
