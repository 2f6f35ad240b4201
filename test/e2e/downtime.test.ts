import { buildImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { listContainers, type Operator, openOperator } from "../platform/operator.ts";

vi.setConfig({ testTimeout: 300_000 });

/** Writes bursts of numbered lines on both streams until SIGTERM, and then how many there were. */
const writer = `
i=0
while [ ! -e /stop ]; do
  n=0
  while [ $n -lt 15 ]; do i=$((i + 1)); n=$((n + 1)); echo "line $i"; done
  echo "burst $((i / 15))" >&2
  sleep 0.1
done
echo "end $i"
sleep 3600
`;

describe.runIf(await requireServer("docker", probeEngine))("while the platform is down", () => {
  const engine = openTestEngine();
  let platform: TestPlatform;
  let operator: Operator;
  let image: TestImage;
  let writing: string;
  let expiring: string;

  beforeAll(async () => {
    image = await buildImage(engine, { command: ["/bin/sh", "/run"], files: { "/run": writer } });
    platform = await startPlatform();
    operator = await openOperator(platform);
    [writing, expiring] = await Promise.all([
      operator.registerImage(image.reference).then((id) => operator.provisionReady(id)),
      // The shortest that the API takes.
      operator.registerImage(image.reference, { ttl_seconds: 60 }).then((id) => operator.provisionReady(id)),
    ]);
  });
  afterAll(async () => {
    await platform?.stop();
    await image?.remove();
  });

  const containerOf = (sandboxId: string) => engine.getContainer(`sandgate-${sandboxId}`);
  const linesOf = async (stream: string): Promise<string[]> => {
    const { logs } = await operator.monitor(writing, `&include=logs&stream=${stream}`);
    return logs.map((entry: { log: string }) => entry.log);
  };

  test("a sandbox keeps running through a stop and a crash, and its logs have no gap and no repetition", async () => {
    const before = (await containerOf(writing).inspect()).State.StartedAt;
    for (const end of [() => platform.terminate(), () => platform.kill()]) {
      const seen = (await linesOf("stdout")).length;
      await expect.poll(async () => (await linesOf("stdout")).length).toBeGreaterThan(seen);
      await end();
      await platform.start();
      expect(await operator.read(writing)).toMatchObject({ state: "ready", state_reason: null });
    }
    const now = (await containerOf(writing).inspect()).State;
    expect([now.Running, now.StartedAt]).toEqual([true, before]);

    const stop = await containerOf(writing).exec({ Cmd: ["touch", "/stop"] });
    await stop.start({});
    await expect.poll(async () => (await linesOf("stdout")).at(-1)).toMatch(/^end /);
    const lines = await linesOf("stdout");
    const count = Number(lines.at(-1)?.split(" ")[1]);
    const numbered = (word: string, most: number) => Array.from({ length: most }, (_, index) => `${word} ${index + 1}`);
    expect(lines).toEqual([...numbered("line", count), `end ${count}`]);
    await expect.poll(() => linesOf("stderr")).toEqual(numbered("burst", count / 15));
  });

  test("samples go on afterwards, in order, from a counter that never falls", async () => {
    const samples = async () => (await operator.monitor(writing, "&include=metrics")).metrics;
    const seen = (await samples()).length;
    await expect.poll(async () => (await samples()).length).toBeGreaterThan(seen);
    const metrics: { timestamp: string; cpu_usage: number; memory_usage: number }[] = await samples();
    for (const [index, sample] of metrics.entries()) {
      const last = metrics[index - 1];
      if (last) {
        expect(Date.parse(sample.timestamp)).toBeGreaterThan(Date.parse(last.timestamp));
        expect(sample.cpu_usage).toBeGreaterThanOrEqual(last.cpu_usage);
      }
      expect(sample.memory_usage).toBeGreaterThan(0);
    }
  });

  test("a sandbox whose time limit passed meanwhile is stopped as soon as the platform is back", async () => {
    const { expires_at, state } = await operator.read(expiring);
    // On a machine so slow that it has expired already, nothing is left to try.
    if (state === "ready") {
      await platform.kill();
      expect((await containerOf(expiring).inspect()).State.Running).toBe(true);
      await platform.start({ clockAheadMs: 60_000 });
    }
    await expect
      .poll(() => operator.read(expiring))
      .toMatchObject({ state: "stopped", state_reason: "ttl_expired", expires_at });
    await expect.poll(() => listContainers(platform, expiring)).toEqual([]);
    expect(await operator.read(writing)).toMatchObject({ state: "ready" });
  });
});
