import { setTimeout as delay } from "node:timers/promises";
import { installationSelector } from "@sandgate/container-labels";
import { callEngine, type Engine, openEngine } from "@sandgate/docker-engine/client";
import { engineMessageOf, ignoreStatus, statusOf } from "@sandgate/docker-engine/errors";
import { messageOf } from "@sandgate/kit/base/domain-error";
import pLimit from "p-limit";
import { removeControlGroup } from "./control-group.ts";
import { removeFirewallRules } from "./firewall.ts";
import { createDockerImages } from "./images.docker.ts";
import { hostNamesOf } from "./names.ts";

/** Of many at once the engine gives some up. */
const removalsAtOnce = 16;
const containersMs = 300_000;
const retryMs = 100;
/** How long the engine may take to release the networks of containers that it has removed. */
const releaseMs = 5_000;

/** What was removed of an installation, and what couldn't be and why; a line for each. */
export interface Removal {
  removed: string[];
  kept: string[];
}

/**
 * Removes the containers with their volumes, the networks, the helper's volumes, images, firewall rules and control
 * groups of an installation whose processes have ended. Throws when the engine can't be asked.
 */
export async function removeInstallation(o: {
  /** As of the runtime. */
  url: string;
  installationId: string;
  /** The names of the images that it pulled. */
  images: readonly string[];
}): Promise<Removal> {
  const { installationId } = o;
  const engine = openEngine(o.url);
  const names = hostNamesOf(installationId);
  const filters = { label: [installationSelector(installationId)] };
  const removal: Removal = { removed: await removeContainers(engine, filters), kept: [] };
  const attempt = async (what: string, work: () => Promise<string[]>) => {
    try {
      removal.removed.push(...(await work()));
    } catch (error) {
      removal.kept.push(`${what}: ${statusOf(error) === undefined ? messageOf(error) : engineMessageOf(error)}`);
    }
  };
  for (const { Id: id, Name: name } of await callEngine((abortSignal) =>
    engine.listNetworks({ filters, abortSignal }),
  )) {
    await attempt(`network ${name}`, async () => {
      await removeNetwork(engine, id);
      return [`network ${name}`];
    });
  }
  const { Volumes: volumes } = await callEngine((abortSignal) => engine.listVolumes({ filters, abortSignal }));
  for (const { Name: name } of volumes ?? []) {
    await attempt(`volume ${name}`, async () => {
      await ignoreStatus(
        [404],
        callEngine((abortSignal) => engine.getVolume(name).remove({ abortSignal })),
      );
      return [`volume ${name}`];
    });
  }
  const images = createDockerImages(engine);
  for (const name of o.images) {
    // One that a container of another installation uses stays.
    await attempt(`image ${name}`, async () => ((await images.remove(name)) ? [`image ${name}`] : []));
  }
  await attempt("firewall rules", () => removeFirewallRules(names));
  await attempt("control group", () => removeControlGroup(names));
  return removal;
}

type Filters = { label: string[] };

async function removeContainers(engine: Engine, filters: Filters): Promise<string[]> {
  const limit = pLimit(removalsAtOnce);
  const removed = new Set<string>();
  const deadline = performance.now() + containersMs;
  for (;;) {
    const listed = await callEngine((abortSignal) => engine.listContainers({ all: true, filters, abortSignal }));
    if (listed.length === 0) return [...removed];
    if (performance.now() > deadline) throw new Error(`the engine has not removed ${listed.length} containers`);
    await Promise.all(
      listed.map(({ Id: id, Names: [name = id] }) =>
        limit(async () => {
          const container = engine.getContainer(id);
          // It is gone, or the engine is removing it already.
          await ignoreStatus(
            [404, 409],
            callEngine((abortSignal) => container.remove({ force: true, v: true, abortSignal })),
          );
          removed.add(`container ${name.replace("/", "")}`);
        }),
      ),
    );
    await delay(retryMs);
  }
}

/**
 * Removes a network once its last container is gone. Docker Engine 20.10 may count one too many after many ended at
 * once, and then keeps the network until it is started again.
 */
async function removeNetwork(engine: Engine, id: string): Promise<void> {
  const deadline = performance.now() + releaseMs;
  for (;;) {
    try {
      await ignoreStatus(
        [404],
        callEngine((abortSignal) => engine.getNetwork(id).remove({ abortSignal })),
      );
      return;
    } catch (error) {
      if (statusOf(error) !== 403 || performance.now() > deadline) throw error;
    }
    await delay(retryMs);
  }
}
