import { setTimeout as delay } from "node:timers/promises";
import { openTestEngine } from "@sandgate/test-support/images";
import type Docker from "dockerode";
import { type Operator, openOperator } from "../platform/operator.ts";
import { compare, type Undo } from "./compare.ts";
import type { Figure } from "./figure.ts";
import { startBenchPlatform } from "./platform.ts";
import { removeSandbox } from "./sandboxes.ts";

const pairs = 25;
const atOnce = 30;
const roundsAtOnce = 5;
const port = 8080;

/**
 * Provision until ready over the public API, against the engine's own API doing create, start and the first probe of a
 * container with default options: alone, and thirty at once, which for the platform are of one workspace.
 */
export async function measureProvision(): Promise<Figure[]> {
  const platform = await startBenchPlatform();
  const engine = openTestEngine();
  try {
    const operator = await openOperator(platform);
    const image = await findImage(operator);
    const runs = { ours: () => runSandbox(operator, engine), bare: () => runBare(engine, image) };
    return [
      await compare("provision to ready, of a bare container's time", "at most 1.15", runs, 1, pairs),
      await compare(`provision ${atOnce} at once, of bare containers' time`, "at most 1.2", runs, atOnce, roundsAtOnce),
    ];
  } finally {
    await platform.stop();
  }
}

async function runSandbox(operator: Operator, engine: Docker): Promise<Undo> {
  const id = await operator.provisionReady(operator.defaultImageId);
  return () => removeSandbox(operator, engine, id);
}

/** The default image, by its reference on the engine. */
async function findImage(operator: Operator): Promise<string> {
  const { body } = await operator.get(`/sandbox-images/${operator.defaultImageId}`, operator.as);
  return body.image;
}

async function runBare(engine: Docker, image: string): Promise<Undo> {
  const container = await engine.createContainer({ Image: image });
  await container.start();
  const { NetworkSettings } = await container.inspect();
  const [network] = Object.values(NetworkSettings.Networks);
  for (;;) {
    const answers = await fetch(`http://${network?.IPAddress}:${port}/`).then(
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
