import { setTimeout as delay } from "node:timers/promises";
import type Docker from "dockerode";
import { expectStatus } from "../conformance/client.ts";
import { openTarget } from "../conformance/target.ts";
import { openTestEngine } from "../support/images.ts";
import { type Figure, median } from "./figure.ts";

const rounds = 15;
const port = 8080;

/** Provision until ready over the public API, against the engine's own API doing the same create, start and first probe. */
export async function measureProvision(): Promise<Figure[]> {
  const target = await openTarget({ SANDGATE_RATE_LIMIT: "0" });
  const engine = openTestEngine();
  const { token, workspace } = target.operator;
  const as = { token, workspace };
  const ours: number[] = [];
  const theirs: number[] = [];
  try {
    for (let round = 0; round <= rounds; round++) {
      const platformMs = await timeOf(async () => {
        const made = await target.post("/sandboxes/provision", { image_id: target.defaultImageId }, as);
        const { id } = expectStatus(made, 201);
        expectStatus(await target.post("/sandboxes/wait", { sandbox_id: id }, as), 200);
        return () => target.delete(`/sandboxes/${id}`, as).then(() => gone(engine, `sandgate-${id}`));
      });
      const bareMs = await timeOf(() => runBare(engine, target.defaultReference));
      // The first round warms both up.
      if (round === 0) continue;
      ours.push(platformMs);
      theirs.push(bareMs);
    }
  } finally {
    await target.close();
  }
  return [
    {
      what: "provision to ready, of the bare engine's time",
      value: median(ours.map((ms, index) => ms / (theirs[index] ?? Number.NaN))),
      unit: "",
      aim: "at most 1.2",
      detail: `${median(ours).toFixed(0)} ms against ${median(theirs).toFixed(0)} ms, median of ${rounds} pairs`,
    },
  ];
}

/** The work's time, without that of the undoing that it answers. */
async function timeOf(work: () => Promise<() => Promise<unknown>>): Promise<number> {
  const startedAt = performance.now();
  const undo = await work();
  const ms = performance.now() - startedAt;
  await undo();
  return ms;
}

async function runBare(engine: Docker, reference: string): Promise<() => Promise<unknown>> {
  const container = await engine.createContainer({
    Image: reference,
    HostConfig: {
      Memory: 1024 * 1024 * 1024,
      MemorySwap: 1024 * 1024 * 1024,
      NanoCpus: 1e9,
      PidsLimit: 512,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges"],
    },
  });
  await container.start();
  const { NetworkSettings } = await container.inspect();
  const address = Object.values(NetworkSettings.Networks)[0]?.IPAddress;
  for (;;) {
    const answers = await fetch(`http://${address}:${port}/`).then(
      (response) => response.ok,
      () => false,
    );
    if (answers) return () => container.remove({ force: true });
    await delay(5);
  }
}

async function gone(engine: Docker, name: string): Promise<void> {
  for (;;) {
    const found = await engine
      .getContainer(name)
      .inspect()
      .then(
        () => true,
        () => false,
      );
    if (!found) return;
    await delay(50);
  }
}
