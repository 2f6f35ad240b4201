import { mkdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { describe, expect } from "vitest";
import { createCgroupFinder } from "./cgroups.ts";

const containerId = "1f0a3c5e7b9d";

const findCgroup = ({ proc, ...o }: { proc: string; containerId: string; pid: number }) =>
  createCgroupFinder({ proc })(o);

/** Writes files below the folder, and returns what `findCgroup` takes. */
async function lay(folder: string, files: Record<string, string>) {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
  return { containerId, pid: 42, proc: join(folder, "proc") };
}

const mountV2 = (folder: string, root = "/") =>
  `30 23 0:26 ${root} ${folder}/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n`;
const mountV1 = (folder: string, controllers: string) =>
  `31 24 0:28 / ${folder}/cgroup/${controllers} rw,relatime shared:9 - cgroup cgroup rw,${controllers}\n`;

const countersV2 = (at: string) => ({
  [`${at}/cpu.stat`]: "usage_usec 12345678\nuser_usec 12000000\nsystem_usec 345678\n",
  [`${at}/memory.current`]: "9000000\n",
  [`${at}/memory.stat`]: "anon 4000000\nfile 5000000\ninactive_anon 7\ninactive_file 3000000\nactive_file 2000000\n",
});
const figures = { cpuSeconds: 12.345678, memoryBytes: 6_000_000 };

describe("the cgroup of a container", () => {
  test("on version 2 is where its process is, by either driver of the engine", async ({ folder }) => {
    for (const path of [`/docker/${containerId}`, `/system.slice/docker-${containerId}.scope`]) {
      const options = await lay(folder, {
        "proc/self/mountinfo": `29 23 0:25 / /proc rw - proc proc rw\n${mountV2(folder)}`,
        "proc/42/cgroup": `0::${path}\n`,
        ...countersV2(`cgroup${path}`),
      });
      const cgroup = await findCgroup(options);
      expect(cgroup.version).toBe(2);
      expect(cgroup.read()).toEqual(figures);
    }
  });

  test("is the container's own, not what its init made below it", async ({ folder }) => {
    const path = `/system.slice/docker-${containerId}.scope`;
    const options = await lay(folder, {
      "proc/self/mountinfo": mountV2(folder),
      "proc/42/cgroup": `0::${path}/init.scope\n`,
      ...countersV2(`cgroup${path}`),
    });
    expect((await findCgroup(options)).read()).toEqual(figures);
  });

  test("on version 1 is that of each controller, also where version 2 is mounted beside it", async ({ folder }) => {
    const options = await lay(folder, {
      "proc/self/mountinfo": `${mountV1(folder, "cpu,cpuacct")}${mountV1(folder, "memory")}${mountV2(folder)}`,
      "proc/42/cgroup": `4:memory:/docker/${containerId}\n2:cpu,cpuacct:/docker/${containerId}\n0::/docker/${containerId}\n`,
      [`cgroup/cpu,cpuacct/docker/${containerId}/cpuacct.usage`]: "12345678000\n",
      [`cgroup/memory/docker/${containerId}/memory.usage_in_bytes`]: "9000000\n",
      [`cgroup/memory/docker/${containerId}/memory.stat`]: "inactive_file 1\ntotal_inactive_file 3000000\n",
    });
    const cgroup = await findCgroup(options);
    expect(cgroup.version).toBe(1);
    expect(cgroup.read()).toEqual(figures);
  });

  test("is found below the cgroup that is mounted here, in a container too", async ({ folder }) => {
    const options = await lay(folder, {
      "proc/self/mountinfo": mountV2(folder, "/../.."),
      "proc/42/cgroup": `0::/../../docker/${containerId}\n`,
      ...countersV2(`cgroup/docker/${containerId}`),
    });
    expect((await findCgroup(options)).read()).toEqual(figures);
  });

  test("can't be read of another host's process, or from a namespace that doesn't show it", async ({ folder }) => {
    const ours = countersV2(`cgroup/docker/${containerId}`);
    const mountinfo = mountV2(folder);
    // The number is another process's here, or nobody's.
    const other = await lay(folder, {
      "proc/self/mountinfo": mountinfo,
      "proc/42/cgroup": "0::/user.slice\n",
      ...ours,
    });
    await expect(findCgroup(other)).rejects.toThrow("not in a cgroup that is seen from here");
    await expect(findCgroup({ ...other, pid: 43 })).rejects.toThrow("ENOENT");
    // Not a path from the mount's root, which would lead out of it.
    const outside = await lay(folder, { "proc/42/cgroup": `0::/../docker/${containerId}\n` });
    await expect(findCgroup(outside)).rejects.toThrow("not in a cgroup that is seen from here");
  });

  test("has no figures once it is gone, and none without the controller of memory", async ({ folder }) => {
    const path = `/docker/${containerId}`;
    const options = await lay(folder, {
      "proc/self/mountinfo": mountV2(folder),
      "proc/42/cgroup": `0::${path}\n`,
      ...countersV2(`cgroup${path}`),
    });
    const cgroup = await findCgroup(options);
    await rm(join(folder, `cgroup${path}/memory.current`));
    expect(cgroup.read()).toBeUndefined();
    await expect(findCgroup(options)).rejects.toThrow("gone or not readable");
  });

  test("is found by the mounts as they were when the first was, unless it isn't there", async ({ folder }) => {
    const path = `/docker/${containerId}`;
    const { proc, ...options } = await lay(folder, {
      "proc/self/mountinfo": mountV2(folder),
      "proc/42/cgroup": `0::${path}\n`,
      ...countersV2(`cgroup${path}`),
    });
    const find = createCgroupFinder({ proc });
    expect((await find(options)).read()).toEqual(figures);
    await lay(folder, { "proc/self/mountinfo": "" });
    expect((await find(options)).read()).toEqual(figures);
    await rm(join(folder, "cgroup"), { recursive: true });
    await lay(folder, {
      "proc/self/mountinfo": mountV2(`${folder}/moved`),
      ...countersV2(`moved/cgroup${path}`),
    });
    expect((await find(options)).read()).toEqual(figures);
  });
});
