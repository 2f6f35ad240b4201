import { stateOf } from "@sandgate/kit/base/dependencies";
import { defineService } from "@sandgate/kit/process/service";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { newImage } from "./domain/images.ts";
import { imageChanged, workspacePurged } from "./events.ts";
import { createHandlers } from "./handlers.ts";
import { imageRegistrySettings, parseImageRegistrySettings } from "./settings.ts";

export { imageRegistrySettings };

/** Rows of each kind that a purge removes in one transaction. */
const purgeBatchSize = 200;

/** The service that owns sandbox images, the global defaults among them, and the credentials of registries. */
export const imageRegistryService = defineService({
  name: "image-registry",
  settings: imageRegistrySettings,
  parseSettings: parseImageRegistrySettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open(context) {
    const { settings, store } = context;
    return {
      routes(router) {
        router.service(ImageRegistryService, createHandlers(context));
      },
      async start() {
        if (settings.defaultImage) {
          const image = newImage(settings.defaultImage, "");
          await store.createDefaultImage(image, [imageChanged("created", image)]);
        }
        return [];
      },
      purge: {
        store,
        stagePurged: workspacePurged,
        async purge(workspaceId, signal) {
          while (!(await store.purgeBatch(workspaceId, purgeBatchSize))) if (signal.aborted) return false;
          return true;
        },
      },
      async dependencies() {
        return { database: await stateOf(store.listOpenPurges()) };
      },
    };
  },
});
