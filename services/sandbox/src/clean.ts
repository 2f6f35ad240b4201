import type { Logger } from "@sandgate/kit/base/logging";
import { type DatabaseTarget, openStore } from "@sandgate/kit/storage/open-store";
import { type Removal, removeInstallation } from "./runtime/docker/removal.ts";
import { stores } from "./store/adapters.ts";

/**
 * Removes from an engine and its host what the installation whose database this is made there. None of its processes
 * may run.
 */
export async function cleanEngine(o: { database: DatabaseTarget; runtime: string; logger: Logger }): Promise<Removal> {
  const store = await openStore(o, stores);
  try {
    const images = (await store.imageUses.list()).map(({ name }) => name);
    const removal = await removeInstallation({
      url: o.runtime,
      installationId: await store.installation.findId(),
      images,
    });
    await store.imageUses.forget(images);
    return removal;
  } finally {
    await store.close();
  }
}
