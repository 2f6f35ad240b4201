import { join } from "node:path";
import type { Client } from "@connectrpc/connect";
import type { DiskSpace } from "@sandgate/kit/base/disk-space";
import type { ServiceContext } from "@sandgate/kit/process/service";
import { asService } from "@sandgate/kit/rpc/context";
import type { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { createGuardedRequest } from "@sandgate/registry-client/guarded-request";
import { createRegistryClient, imageTimeoutMs } from "@sandgate/registry-client/registry-client";
import type { PullProgress } from "./domain/sandbox.ts";
import { createImageCache } from "./pulls/image-cache.ts";
import { createImagePuller } from "./pulls/image-puller.ts";
import { requireWritable } from "./pulls/process-folder.ts";
import { createPullEndpoint } from "./pulls/pull-endpoint.ts";
import type { ReconcilerOptions } from "./reconcile/reconciler.ts";
import type { ImageStore } from "./runtime/images.ts";
import type { SandboxSettings } from "./settings.ts";
import type { SandboxStore } from "./store/store.ts";
import { createPullRecorder } from "./usecases/pull-progress.ts";
import { findPinnedImages } from "./usecases/unfinished-sandboxes.ts";

/**
 * How long image-registry may take to say how an image is pulled: a registry that says nothing keeps it waiting for
 * another call's question about the image, and then for its own.
 */
const accessTimeoutMs = 2 * imageTimeoutMs + 5_000;

type Context = Pick<ServiceContext<SandboxSettings, SandboxStore>, "logger" | "settings" | "store">;

/**
 * What brings the images of sandboxes to where they run, and the engine's side of that: its `images`, which are kept
 * within their limit, and the endpoint that it pulls them from. Where nodes pull, there is neither. `requireFolder` throws
 * the file system's error unless layers can be stored.
 */
export function openPulls(
  context: Context,
  images: ImageStore | undefined,
  imageRegistry: Client<typeof ImageRegistryService>,
  { measureAvailable, shortage }: Pick<DiskSpace, "measureAvailable" | "shortage">,
) {
  const { logger, settings, store } = context;
  const destination = images && openDestination(context, images, shortage);
  const folder = join(settings.data, "pulls");
  const puller = createImagePuller({
    destination,
    measureAvailable,
    authorizePull: (order, signal) =>
      imageRegistry.authorizePull(order, asService({ signal, timeoutMs: accessTimeoutMs })),
    async recordVerified(registryHost, layers, signal) {
      await imageRegistry.recordVerifiedLayers({ registryHost, layers: [...layers] }, asService({ signal }));
    },
    client: createRegistryClient(createGuardedRequest(settings.allowedHosts), settings.allowedHosts),
    folder,
    maxImageMb: settings.imageMaxMb,
  });
  const recordPull = createPullRecorder({ record: store.activity.recordPull, logger });

  const pullImage: ReconcilerOptions["pullImage"] = (sandbox, signal, tellReconciler) => {
    const { id, workspaceId, image } = sandbox;
    const { registryId, reference } = image;
    return recordPull(id, (record) => {
      const onProgress = (now: PullProgress) => {
        tellReconciler(now);
        // Where nodes pull, nobody sees how far they are.
        if (destination) record(now);
      };
      return puller.pull({ workspaceId, registryId, reference, onProgress }, signal);
    });
  };

  // By the pinned reference: a tag may have moved on.
  const findAccess: ReconcilerOptions["findAccess"] = ({ workspaceId, image, pinnedReference }) =>
    puller.findAccess(
      { workspaceId, registryId: image.registryId, reference: pinnedReference ?? image.reference },
      AbortSignal.timeout(accessTimeoutMs),
    );

  return { destination, pullImage, findAccess, requireFolder: () => requireWritable(folder) };
}

/** What pulls images onto an engine that has a store of them, and keeps that within its limit. */
function openDestination({ logger, settings, store }: Context, images: ImageStore, shortage: DiskSpace["shortage"]) {
  const endpoint = createPullEndpoint(settings.pullPort);
  const cache = createImageCache({
    store: images,
    uses: store.imageUses,
    findWanted: () => findPinnedImages(store.unfinished),
    registryHost: endpoint.listen,
    maxMb: settings.imageCacheMb,
    shortage,
    logger,
  });
  return { endpoint, cache, store: images };
}
