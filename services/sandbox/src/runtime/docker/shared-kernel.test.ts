import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import type { PeriodicTask } from "@sandgate/kit/base/periodic-task";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterEach, expect } from "vitest";
import { opensHostBus, sharesKernelAsRoot, startKernelWarnings } from "./shared-kernel.ts";

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

const protocols = "protocol  size sockets\nAF_VSOCK  1240      0\nUNIX      1024    150\n";
const old = { ...plain, ServerVersion: "24.0.9" };

test.each<[string, object, string | undefined, string, boolean]>([
  ["an engine whose profile lets them", {}, undefined, protocols, true],
  ["a kernel without it", {}, undefined, "UNIX      1024    150\n", false],
  ["a later engine", { ServerVersion: "25.0.0" }, undefined, protocols, false],
  ["user namespaces", { SecurityOptions: ["name=seccomp,profile=builtin", "name=userns"] }, undefined, protocols, true],
  [
    "a profile of the operator's",
    { SecurityOptions: ["name=seccomp,profile=/etc/s.json"] },
    undefined,
    protocols,
    false,
  ],
  ["gVisor", {}, "runsc", protocols, false],
])("whether sandboxes open sockets to the hypervisor: %s", (_, info, ociRuntime, known, expected) => {
  expect(opensHostBus({ ...old, ...info }, ociRuntime, known)).toBe(expected);
});

let server: Server;
let task: PeriodicTask;
afterEach(async () => {
  await task?.stop();
  server?.close();
});

/** What is logged about an engine that answers so. */
async function warningsOf(folder: string, info: object, isOpen = true): Promise<string[]> {
  const socket = join(folder, "engine.sock");
  let asked = 0;
  server = createServer((_request, response) => {
    asked += 1;
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(info));
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const lines: string[] = [];
  const logger = createLogger({ service: "sandbox" }, { write: (line) => void lines.push(line) });
  task = startKernelWarnings({ url: `docker://${socket}`, ociRuntime: undefined, isOpen, logger });
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

test("an engine without them is not, where nobody may register", async ({ folder }) => {
  expect(await warningsOf(folder, plain, false)).toEqual([]);
});
