import { join } from "node:path";
import { openFaultProxy } from "@sandgate/test-support/fault-proxy";
import { buildImage, engineSocket, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { afterAll, beforeAll, describe, vi } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { lineWriter } from "../platform/line-writer.ts";
import { startPlatform } from "../platform/local.ts";
import { listContainers, openOperator } from "../platform/operator.ts";

vi.setConfig({ testTimeout: 300_000 });

describe.runIf(await requireServer("docker", probeEngine))("an engine that fails under the platform", () => {
  let image: TestImage;

  beforeAll(async () => {
    image = await buildImage(openTestEngine(), { command: ["sh", "-c", lineWriter({ everySeconds: 0.1 })] });
  });
  afterAll(() => image?.remove());

  test.concurrent.for([
    ["is gone", "down"],
    ["accepts connections and doesn't answer", "silent"],
  ] as const)(
    "one that %s: no sandbox is lost, and requests made meanwhile are carried out once it is back",
    async ([, mode], { expect, folder }) => {
      await using closing = new AsyncDisposableStack();
      const path = join(folder, "engine.sock");
      const proxy = await openFaultProxy({ listen: { path }, to: { path: engineSocket } });
      closing.adopt(proxy, (each) => each.close());
      const platform = await startPlatform({ settings: { SANDGATE_RUNTIME: `docker://${path}` } });
      closing.adopt(platform, (each) => each.stop());
      const operator = await openOperator(platform);
      const imageId = await operator.registerImage(image.reference);

      /** The names of the dependencies that are not ok. */
      async function listProblems(): Promise<string[]> {
        const { dependencies } = expectStatus(await operator.get("/readyz"), 200);
        return Object.keys(dependencies).filter((name) => dependencies[name] !== "ok");
      }
      const stateOf = async (sandboxId: string): Promise<string> => (await operator.read(sandboxId)).state;

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
    },
  );
});
