import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { expect, vi } from "vitest";
import { type CgroupInfo, createControlGroup } from "./control-group.ts";
import { hostNamesOf } from "./names.ts";

const names = hostNamesOf("i1");
const totals = { pids: 900, memoryMb: 2_048, cpuWeight: 50 };

function open(root: string, info: CgroupInfo) {
  const logger = createLogger({ service: "sandbox", level: "silent" });
  const warn = vi.spyOn(logger, "warn");
  const group = createControlGroup({ names, totals, logger, root });
  return { group, parent: group.parentOf(info), warn };
}

/** The files that the kernel makes in a group. */
function makeGroup(root: string, files: Record<string, string>): void {
  for (const [file, value] of Object.entries(files)) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), value);
  }
}

const readGroup = (root: string, files: Record<string, string>) =>
  Object.fromEntries(Object.keys(files).map((file) => [file, readFileSync(join(root, file), "utf8")]));

test("sets the limits of control groups v2 in systemd's slice, once the first container is in it", async ({
  folder,
}) => {
  const { group, parent, warn } = open(folder, { CgroupDriver: "systemd", CgroupVersion: "2" });
  expect(parent).toBe(`${names.controlGroup}.slice`);
  const files = { "pids.max": "max\n", "memory.max": "max\n", "cpu.weight": "100\n" };
  const inSlice = Object.fromEntries(Object.entries(files).map(([file, value]) => [`${parent}/${file}`, value]));
  await group.apply();
  makeGroup(folder, inSlice);
  await group.applyOnce();
  expect(Object.values(readGroup(folder, inSlice))).toEqual(["900", String(2_048 * 1024 * 1024), "50"]);
  // What somebody changed is set again by the next check, not before.
  makeGroup(folder, inSlice);
  await group.applyOnce();
  expect(readGroup(folder, inSlice)).toEqual(inSlice);
  await group.apply();
  expect(Object.values(readGroup(folder, inSlice))[0]).toBe("900");
  expect(warn).not.toHaveBeenCalled();
});

test("sets the limits of control groups v1, of each controller", async ({ folder }) => {
  const { group, parent } = open(folder, { CgroupDriver: "cgroupfs", CgroupVersion: "1" });
  expect(parent).toBe(`/${names.controlGroup}`);
  const files = {
    [`pids${parent}/pids.max`]: "max\n",
    [`memory${parent}/memory.limit_in_bytes`]: "9223372036854771712\n",
    [`cpu${parent}/cpu.shares`]: "1024\n",
  };
  makeGroup(folder, files);
  await group.apply();
  expect(Object.values(readGroup(folder, files))).toEqual(["900", String(2_048 * 1024 * 1024), "512"]);
});

test("warns once where control groups can't be written, and names theirs", async ({ folder }) => {
  const { group, warn } = open(folder, { CgroupDriver: "cgroupfs", CgroupVersion: "1" });
  rmSync(folder, { recursive: true });
  await group.apply();
  await group.apply();
  expect(warn.mock.calls).toEqual([
    [
      { reason: expect.stringContaining("ENOENT"), controlGroup: names.controlGroup },
      expect.stringContaining("can't be set"),
    ],
  ]);
  mkdirSync(folder);
});

test("asks nothing of an engine without control groups", async ({ folder }) => {
  const { group, parent, warn } = open(folder, { CgroupDriver: "none", CgroupVersion: "2" });
  await group.apply();
  expect([parent, warn.mock.calls]).toEqual([undefined, []]);
});
