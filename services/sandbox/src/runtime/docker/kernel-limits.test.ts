import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { totalmem } from "node:os";
import { dirname, join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { expect, vi } from "vitest";
import { createKernelLimits } from "./kernel-limits.ts";

/** Kernel parameters with these values. */
function write(root: string, values: Record<string, string>): void {
  for (const [file, value] of Object.entries(values)) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), value);
  }
}

function open(root: string, maxConnections = 1_024) {
  const logger = createLogger({ service: "sandbox", level: "silent" });
  const warn = vi.spyOn(logger, "warn");
  const read = (file: string) => Number(readFileSync(join(root, file), "utf8"));
  return { limits: createKernelLimits({ maxConnections, logger, root }), read, warn };
}

const neighbours = "net/ipv4/neigh/default/gc_thresh3";
const connections = "net/netfilter/nf_conntrack_max";

test("raises what is too low until sandboxes are short of memory first, and lowers nothing", async ({ folder }) => {
  write(folder, {
    "fs/epoll/max_user_watches": "1000\n",
    "fs/inotify/max_user_instances": "2147483647\n",
    [neighbours]: "1024\n",
    [connections]: "1\n",
  });
  const { limits, read, warn } = open(folder);
  await limits.apply();
  expect(read("fs/epoll/max_user_watches") * 128).toBeGreaterThan(totalmem() - 128);
  expect(read("fs/inotify/max_user_instances")).toBe(2_147_483_647);
  // A sandbox for each 4 MiB.
  expect(read(neighbours)).toBe(Math.floor((totalmem() / 4 / 2 ** 20) * 254));
  expect(read(connections)).toBe(Math.floor((totalmem() / 4 / 2 ** 20) * 1_024));
  expect(warn).not.toHaveBeenCalled();
});

test("leaves the table of connections alone where a sandbox may have any number of them", async ({ folder }) => {
  write(folder, { [connections]: "1\n" });
  const { limits, read } = open(folder, 0);
  await limits.apply();
  expect(read(connections)).toBe(1);
});

test("warns once of what can't be raised, with the values to set", async ({ folder }) => {
  // A folder in a parameter's place can be neither read nor written.
  mkdirSync(join(folder, "fs/aio-max-nr"), { recursive: true });
  const { limits, warn } = open(folder);
  await limits.apply();
  await limits.apply();
  expect(warn.mock.calls).toEqual([
    [
      { sysctls: { "fs.aio-max-nr": expect.any(Number) }, reason: expect.stringContaining("EISDIR") },
      expect.stringContaining("set these sysctls"),
    ],
  ]);
});
