import { setTimeout as delay } from "node:timers/promises";
import { openTestEngine } from "@sandgate/test-support/images";
import type Docker from "dockerode";
import { type Operator, openOperator } from "../platform/operator.ts";
import { type Figure, median } from "./figure.ts";
import { startBenchPlatform } from "./platform.ts";

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

export type Undo = () => Promise<unknown>;

interface Runs {
  ours(): Promise<Undo>;
  bare(): Promise<Undo>;
}

export async function compare(what: string, aim: string, runs: Runs, amount: number, rounds: number): Promise<Figure> {
  const ours: number[] = [];
  const bare: number[] = [];
  // The first round only warms both up.
  for (let round = 0; round <= rounds; round++) {
    ours.push(await timeOf(runs.ours, amount));
    bare.push(await timeOf(runs.bare, amount));
  }
  const [measured, against] = [ours.slice(1), bare.slice(1)];
  const ratios = measured.map((ms, round) => ms / (against[round] ?? Number.NaN));
  const [least, most] = [Math.min(...ratios).toFixed(2), Math.max(...ratios).toFixed(2)];
  return {
    what,
    value: median(ratios),
    unit: "",
    aim,
    detail: `${median(measured).toFixed(0)} ms against ${median(against).toFixed(0)} ms; ${least} to ${most} in ${rounds} rounds`,
  };
}

/** The time of that many runs at once, without that of the cleanup that each answers. */
async function timeOf(run: () => Promise<Undo>, amount: number): Promise<number> {
  const startedAt = performance.now();
  const undos = await Promise.all(Array.from({ length: amount }, run));
  const ms = performance.now() - startedAt;
  await Promise.all(undos.map((undo) => undo()));
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
