import { setTimeout as delay } from "node:timers/promises";
import { openTestEngine } from "@sandgate/test-support/images";
import type Docker from "dockerode";
import type { ContainerCreateOptions } from "dockerode";
import { type Operator, openOperator } from "../platform/operator.ts";
import { type Figure, median } from "./figure.ts";
import { startBenchPlatform } from "./platform.ts";

const rounds = 25;
const port = 8080;

/**
 * Provision until ready over the public API, against the engine's own API doing the same create, start and first probe,
 * of a container on the same network with everything else that the platform asks for a sandbox.
 */
export async function measureProvision(): Promise<Figure[]> {
  const platform = await startBenchPlatform();
  const engine = openTestEngine();
  const ours: number[] = [];
  const theirs: number[] = [];
  try {
    const operator = await openOperator(platform);
    // This also warms both up.
    const options = await readOptions(operator, engine);
    await timeOf(() => runBare(engine, options));
    for (let round = 0; round < rounds; round++) {
      ours.push(await timeOf(() => runSandbox(operator, engine)));
      theirs.push(await timeOf(() => runBare(engine, options)));
    }
  } finally {
    await platform.stop();
  }
  return [
    {
      what: "provision to ready, of the bare engine's time",
      value: median(ours.map((ms, round) => ms / (theirs[round] ?? Number.NaN))),
      unit: "",
      aim: "at most 1.2",
      detail: `${median(ours).toFixed(0)} ms against ${median(theirs).toFixed(0)} ms, median of ${rounds} pairs`,
    },
  ];
}

type Undo = () => Promise<unknown>;

/** The time of the work, without that of the cleanup that it answers. */
async function timeOf(work: () => Promise<Undo>): Promise<number> {
  const startedAt = performance.now();
  const undo = await work();
  const ms = performance.now() - startedAt;
  await undo();
  return ms;
}

async function runSandbox(operator: Operator, engine: Docker): Promise<Undo> {
  const id = await operator.provisionReady(operator.defaultImageId);
  return () => remove(operator, engine, id);
}

async function remove(operator: Operator, engine: Docker, id: string): Promise<void> {
  await operator.delete(`/sandboxes/${id}`, operator.as);
  const isThere = () =>
    engine
      .getContainer(`sandgate-${id}`)
      .inspect()
      .then(
        () => true,
        () => false,
      );
  while (await isThere()) await delay(50);
}

/** The options with which the platform creates a sandbox's container, without names and labels. */
async function readOptions(operator: Operator, engine: Docker): Promise<ContainerCreateOptions> {
  const id = await operator.provisionReady(operator.defaultImageId);
  const { Image, Config, HostConfig } = await engine.getContainer(`sandgate-${id}`).inspect();
  await remove(operator, engine, id);
  return { Image, Healthcheck: Config.Healthcheck, HostConfig };
}

async function runBare(engine: Docker, options: ContainerCreateOptions): Promise<Undo> {
  const container = await engine.createContainer(options);
  await container.start();
  const { NetworkSettings } = await container.inspect();
  const address = Object.values(NetworkSettings.Networks)[0]?.IPAddress;
  for (;;) {
    const answers = await fetch(`http://${address}:${port}/`).then(
      async (response) => {
        await response.body?.cancel();
        return response.ok;
      },
      () => false,
    );
    if (answers) return () => container.remove({ force: true });
    await delay(5);
  }
}
