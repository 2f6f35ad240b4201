import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import type { PeriodicTask } from "@sandgate/kit/base/periodic-task";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterEach, expect } from "vitest";
import { sharesKernelAsRoot, startKernelWarning } from "./shared-kernel.ts";

const runtimes = {
  runc: { path: "runc" },
  runsc: { path: "/usr/bin/runsc" },
  vm: { runtimeType: "io.containerd.kata.v2" },
};
const plain = { DefaultRuntime: "runc", Runtimes: runtimes, SecurityOptions: ["name=seccomp,profile=default"] };

test.each<[string, object, string | undefined, boolean]>([
  ["runc", plain, undefined, true],
  ["runc by name, though the default is gVisor", { ...plain, DefaultRuntime: "runsc" }, "runc", true],
  ["gVisor", plain, "runsc", false],
  ["gVisor as the engine's default", { ...plain, DefaultRuntime: "runsc" }, undefined, false],
  ["Kata under another name", plain, "vm", false],
  ["user namespaces", { ...plain, SecurityOptions: ["name=seccomp,profile=default", "name=userns"] }, undefined, false],
  ["a rootless engine", { ...plain, SecurityOptions: ["name=rootless"] }, undefined, false],
  ["an engine that tells nothing", {}, undefined, true],
])("whether a sandbox's root is the host's: %s", (_, info, ociRuntime, expected) => {
  expect(sharesKernelAsRoot(info, ociRuntime)).toBe(expected);
});

let server: Server;
let task: PeriodicTask;
afterEach(async () => {
  await task?.stop();
  server?.close();
});

/** What is logged about an engine that answers so. */
async function warningsOf(folder: string, info: object): Promise<string[]> {
  const socket = join(folder, "engine.sock");
  let asked = 0;
  server = createServer((_request, response) => {
    asked += 1;
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(info));
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const lines: string[] = [];
  const logger = createLogger({ service: "sandbox" }, { write: (line) => void lines.push(line) });
  task = startKernelWarning({ url: `docker://${socket}`, ociRuntime: undefined, logger });
  await until(() => expect(asked).toBe(1));
  await task.stop();
  return lines;
}

test("an engine without them is named in one warning that says what to do", async ({ folder }) => {
  const [warning, ...more] = await warningsOf(folder, plain);
  expect(warning).toMatch(
    /user namespaces nor gVisor.*userns-remap.*SANDGATE_OCI_RUNTIME.*SANDGATE_REGISTRATION=closed/,
  );
  expect(more).toEqual([]);
});

test("an engine with them is not", async ({ folder }) => {
  expect(await warningsOf(folder, { ...plain, DefaultRuntime: "runsc" })).toEqual([]);
});
