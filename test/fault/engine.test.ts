import { join } from "node:path";
import { type FaultProxy, openFaultProxy } from "@sandgate/test-support/fault-proxy";
import { buildImage, engineSocket, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder, type TempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { listContainers, type Operator, openOperator } from "../platform/operator.ts";

vi.setConfig({ testTimeout: 300_000 });

const writer = `
trap 'exit 0' TERM
i=0
while true; do i=$((i + 1)); echo "line $i"; sleep 0.1; done
`;

describe.runIf(await requireServer("docker", probeEngine))("an engine that fails under the platform", () => {
  const engine = openTestEngine();
  let folder: TempFolder;
  let proxy: FaultProxy;
  let platform: TestPlatform;
  let operator: Operator;
  let image: TestImage;
  let imageId: string;

  beforeAll(async () => {
    folder = await createTempFolder();
    const path = join(folder.path, "engine.sock");
    proxy = await openFaultProxy({ listen: { path }, to: { path: engineSocket } });
    image = await buildImage(engine, { command: ["/bin/sh", "/run"], files: { "/run": writer } });
    platform = await startPlatform({ settings: { SANDGATE_RUNTIME: `docker://${path}` } });
    operator = await openOperator(platform);
    imageId = await operator.registerImage(image.reference);
  });
  afterAll(async () => {
    await platform?.stop();
    await proxy?.close();
    await image?.remove();
    await folder?.remove();
  });

  /** Each dependency that is not in order, by its name. */
  async function listProblems(): Promise<string[]> {
    const { dependencies } = expectStatus(await operator.get("/readyz"), 200);
    return Object.keys(dependencies).filter((name) => dependencies[name] !== "ok");
  }

  const stateOf = async (sandboxId: string): Promise<string> => (await operator.read(sandboxId)).state;

  test.each([
    ["is gone", "down"],
    ["takes connections and doesn't answer", "silent"],
  ] as const)(
    "one that %s costs no sandbox, and what was asked for meanwhile is done once it is back",
    async (_, mode) => {
      await expect.poll(listProblems, { interval: 500 }).toEqual([]);
      const running = await operator.provisionReady(imageId);
      const unwanted = await operator.provisionReady(imageId);
      const lines = async (): Promise<string[]> =>
        (await operator.monitor(running, "&include=logs")).logs.map((entry: { log: string }) => entry.log);
      await expect.poll(async () => (await lines()).length).toBeGreaterThan(0);

      await proxy.set(mode);
      const late = await operator.provision(imageId);
      expectStatus(await operator.delete(`/sandboxes/${unwanted}`, operator.as), 204);
      await expect.poll(listProblems, { interval: 500 }).toContain("sandbox.runtime");
      expect(await stateOf(running)).toBe("ready");
      expect(await stateOf(unwanted)).toBe("stopping");
      expect(await stateOf(late)).toBe("provisioning");
      const seen = (await lines()).length;

      await proxy.set("open");
      expectStatus(await operator.wait(late), 200);
      await expect.poll(() => stateOf(unwanted)).toBe("stopped");
      await expect.poll(() => listContainers(platform, unwanted)).toEqual([]);
      expect(await stateOf(running)).toBe("ready");
      await expect.poll(async () => (await lines()).length).toBeGreaterThan(seen);
      const all = await lines();
      expect(all).toEqual(all.map((_, index) => `line ${index + 1}`));
      for (const sandboxId of [running, late]) {
        expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
      }
    },
  );
});
