import { stateOf } from "@sandgate/kit/base/dependencies";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { dayMs, hourMs } from "@sandgate/kit/base/time";
import { defineService } from "@sandgate/kit/process/service";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { newImage } from "./domain/images.ts";
import { imageChanged, workspacePurged } from "./events.ts";
import { createHandlers } from "./handlers.ts";
import { imageRegistrySettings, parseImageRegistrySettings } from "./settings.ts";

export { imageRegistrySettings };

/** Rows of a kind that are removed in one transaction. */
const batchSize = 200;
/** They are downloaded and verified again after that. It bounds what those rows can come to. */
const verifiedKeptDays = 90;
/** Those verified last, of all workspaces and registries: some 200 MB, whatever a registry of a tenant's own gives out. */
const verifiedKept = 1_000_000;

/** The service that owns sandbox images, the global defaults among them, and the credentials of registries. */
export const imageRegistryService = defineService({
  name: "image-registry",
  settings: imageRegistrySettings,
  parseSettings: parseImageRegistrySettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open(context) {
    const { logger, settings, store } = context;
    return {
      routes(router) {
        router.service(ImageRegistryService, createHandlers(context));
      },
      async start() {
        if (settings.defaultImage) {
          const image = newImage(settings.defaultImage, "");
          await store.createDefaultImage(image, [imageChanged("created", image)]);
        }
        return [
          startPeriodicTask({
            what: "forget where layers were verified long ago",
            everyMs: hourMs,
            logger,
            async work(signal) {
              const old = new Date(Date.now() - verifiedKeptDays * dayMs);
              const beyond = await store.findVerifiedBeyond(verifiedKept);
              const before = beyond && beyond > old ? beyond : old;
              while (!signal.aborted && (await store.deleteVerifiedBefore(before, batchSize)) === batchSize);
            },
          }),
        ];
      },
      purge: {
        store,
        workspacePurged,
        async purge(workspaceId, signal) {
          while (!(await store.purgeBatch(workspaceId, batchSize))) if (signal.aborted) return false;
          return true;
        },
      },
      async dependencies() {
        return { database: await stateOf(store.listOpenPurges()) };
      },
    };
  },
});
