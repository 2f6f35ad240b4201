import type { ServiceImpl } from "@connectrpc/connect";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { defineService } from "@sandgate/kit/process/service";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { createGuardedRequest } from "@sandgate/registry-client/guarded-request";
import { createRegistryClient } from "@sandgate/registry-client/registry-client";
import { workspacePurged } from "./events.ts";
import { createImageHandlers } from "./handlers/images.ts";
import { createRegistryHandlers } from "./handlers/registries.ts";
import { imageRegistrySettings, parseImageRegistrySettings } from "./settings.ts";
import { keepDefaultImage } from "./usecases/images.ts";
import { purgeWorkspace, startForgettingLayers } from "./usecases/retention.ts";

export { imageRegistrySettings };

/** The service that owns sandbox images, the global defaults among them, and the credentials of registries. */
export const imageRegistryService = defineService({
  name: "image-registry",
  settings: imageRegistrySettings,
  parseSettings: parseImageRegistrySettings,
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open(context) {
    const { settings, store } = context;
    const { allowedHosts, defaultImage } = settings;
    const client = createRegistryClient(createGuardedRequest(allowedHosts), allowedHosts);
    return {
      routes(router) {
        router.service(ImageRegistryService, {
          ...createImageHandlers(context),
          ...createRegistryHandlers(context, client),
        } satisfies ServiceImpl<typeof ImageRegistryService>);
      },
      async start() {
        if (defaultImage) await keepDefaultImage(store, defaultImage);
        return [startForgettingLayers(context)];
      },
      purge: {
        store: store.purges,
        workspacePurged,
        purge: (workspaceId, signal) => purgeWorkspace(store.purges, workspaceId, signal),
      },
      async dependencies() {
        return { database: await stateOf(store.purges.listOpenPurges()) };
      },
    };
  },
});
