import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { promisify } from "node:util";
import { listHostAddresses } from "@sandgate/test-support/host-addresses";
import { buildImage, openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

const execute = promisify(execFile);
/** Stands in for a cloud's metadata service, which is at another link-local address. */
const linkLocal = "169.254.77.77";

describe.runIf(await requireServer("docker", probeEngine))(
  "a sandbox made through the public API",
  { timeout: 300_000 },
  () => {
    const engine = openTestEngine();
    let closing: AsyncDisposableStack;
    let platform: TestPlatform;
    let operator: Operator;
    let metadata: Server;

    beforeAll(async () => {
      closing = new AsyncDisposableStack();
      await execute("ip", ["address", "replace", `${linkLocal}/32`, "dev", "lo"]);
      closing.defer(async () => {
        await execute("ip", ["address", "del", `${linkLocal}/32`, "dev", "lo"]);
      });
      metadata = createServer((_, response) => response.end("credentials")).listen(0, linkLocal);
      await once(metadata, "listening");
      closing.defer(() => void metadata.close());
      platform = closing.adopt(
        // The platform listens where a sandbox could reach it, and a fork bomb is small.
        await startPlatform({ settings: { SANDGATE_HOST: "0.0.0.0", SANDGATE_SANDBOX_PIDS: "64" } }),
        (each) => each.stop(),
      );
      operator = await openOperator(platform);
    });
    afterAll(() => closing?.disposeAsync());

    async function makeImage(script: string): Promise<string> {
      const image = await buildImage(engine, { command: ["/bin/sh", "/run"], files: { "/run": script } });
      closing.defer(() => image.remove());
      return image.reference;
    }

    /** Runs a script in a sandbox and returns the lines it logged before its last one, "done". */
    async function runInSandbox(script: string): Promise<string[]> {
      const reference = await makeImage(`${script}\necho done\nsleep 3600\n`);
      const sandboxId = await operator.provisionReady(await operator.registerImage(reference));
      const lines = async (): Promise<string[]> =>
        (await operator.monitor(sandboxId, "&include=logs")).logs.map((entry: { log: string }) => entry.log);
      await expect.poll(async () => (await lines()).at(-1)).toBe("done");
      expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
      return (await lines()).slice(0, -1);
    }

    /** The same script in a container that nothing isolates, to show that what is forbidden would work. */
    async function runUnprotected(script: string): Promise<string[]> {
      const container = await engine.createContainer({ Image: await makeImage(script) });
      try {
        await container.start();
        await container.wait();
        const output = await container.logs({ stdout: true, stderr: true, follow: false });
        // Each frame has a header of eight bytes.
        return output
          .toString("latin1")
          .split("\n")
          .slice(0, -1)
          .map((line) => line.slice(8));
      } finally {
        await container.remove({ force: true });
      }
    }

    async function provisionNeighbour(): Promise<{ id: string; address: string; gateway: string }> {
      const id = await operator.provisionReady(operator.defaultImageId);
      const { Networks } = (await engine.getContainer(`sandgate-${id}`).inspect()).NetworkSettings;
      const [network] = Object.values(Networks);
      return { id, address: network?.IPAddress ?? "", gateway: network?.Gateway ?? "" };
    }

    test("reaches neither the platform, the engine, a neighbour nor link-local addresses", async () => {
      const neighbour = await provisionNeighbour();
      const { port } = new URL(platform.url);
      const hostAddresses = [...listHostAddresses(), neighbour.gateway];
      expect(hostAddresses.length).toBeGreaterThan(1);
      const targets = [
        ...hostAddresses.map((address) => `http://${address}:${port}/healthz`),
        `http://${linkLocal}:${(metadata.address() as AddressInfo).port}/`,
      ];
      const tries = (urls: readonly string[], seconds: number) =>
        [
          ...urls.map((url) => `(timeout ${seconds} wget -q -O /dev/null ${url} && echo reached ${url}) 2>/dev/null &`),
          "wait",
        ].join("\n");

      const reached = await runUnprotected(tries(targets, 30));
      expect(reached.sort()).toEqual(targets.map((url) => `reached ${url}`).sort());
      const neighbourly = `http://${neighbour.address}:8080/`;
      expect((await fetch(neighbourly)).status).toBe(200);
      const enginePorts = hostAddresses.flatMap((address) =>
        [2375, 2376].map((each) => `http://${address}:${each}/_ping`),
      );
      const sockets = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"];
      const seen = await runInSandbox(
        [
          tries([...targets, neighbourly, ...enginePorts], 5),
          ...sockets.map((path) => `[ -e ${path} ] && echo found ${path}`),
          "grep -q docker.sock /proc/mounts && echo mounted",
        ].join("\n"),
      );
      expect(seen).toEqual([]);
    });

    test("has nothing of the platform in its environment", async () => {
      const lines = await runInSandbox("tr '\\0' '\\n' < /proc/1/environ");
      const names = lines.map((line) => line.split("=")[0]);
      expect(names).toContain("PATH");
      expect(names.filter((name) => !["PATH", "HOSTNAME", "HOME"].includes(name ?? ""))).toEqual([]);
    });

    test("affects nobody else with a fork bomb", async () => {
      const neighbour = await provisionNeighbour();
      // The inner shell ends when it can fork no more; the outer then keeps its CPU busy without forking.
      const bomb = `trap 'exit 0' TERM; (while true; do sleep 600 & done) 2>/dev/null; echo full; while :; do :; done`;
      const reference = await makeImage(bomb);
      const bombId = await operator.provision(await operator.registerImage(reference, { readiness_port: 8080 }));
      await expect.poll(async () => (await operator.monitor(bombId, "&include=logs")).logs.length).toBe(1);

      expect((await fetch(`http://${neighbour.address}:8080/`)).status).toBe(200);
      expectStatus(
        await operator.delete(`/sandboxes/${await operator.provisionReady(operator.defaultImageId)}`, operator.as),
        204,
      );
      expect(await operator.read(neighbour.id)).toMatchObject({ state: "ready" });
      expectStatus(await operator.delete(`/sandboxes/${bombId}`, operator.as), 204);
      await expect.poll(async () => (await operator.read(bombId)).state).toBe("stopped");
    });
  },
);
