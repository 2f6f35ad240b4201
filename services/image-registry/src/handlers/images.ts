import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { readPage } from "@sandgate/kit/base/page";
import type { ServiceContext } from "@sandgate/kit/process/service";
import { callOf, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { createRunIdempotent } from "@sandgate/kit/rpc/idempotency";
import {
  CreateImageResponseSchema,
  type Image,
  ImageRegistryService,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import { type ImageView, newImage, readNewImage } from "../domain/images.ts";
import { toImage, toResolvedImage } from "../messages.ts";
import type { ImageRegistrySettings } from "../settings.ts";
import type { ImageRegistryStore } from "../store/store.ts";
import { createImage, deleteImage, findImage, findImageByName, updateImage } from "../usecases/images.ts";

const { method } = ImageRegistryService;
/** How many images of a whole list are read at once. */
const wholeListPage = 100;

/** Answers the calls about images. */
export function createImageHandlers(o: ServiceContext<ImageRegistrySettings, ImageRegistryStore>) {
  const { store, settings } = o;
  const runIdempotent = createRunIdempotent(o);
  return {
    async createImage(request, context) {
      const call = callOf(context);
      const workspaceId = workspaceOf(call);
      return runIdempotent(call, method.createImage, request, async (recordFor) => {
        const fields = readNewImage(request, settings.allowedHosts);
        if (request.isDefault && !userOf(call).operator) {
          throw new DomainError("FORBIDDEN", "Only an operator may create a global default image.", {
            hint: "Leave is_default out to register the image for this workspace.",
          });
        }
        const image = newImage(fields, request.isDefault ? "" : workspaceId);
        const toResponse = (view: ImageView) => create(CreateImageResponseSchema, { image: toImage(view) });
        return toResponse(await createImage(o, call, image, (view) => recordFor(toResponse(view))));
      });
    },

    async getImage({ imageId }, context) {
      return { image: toImage(await findImage(store, callOf(context), imageId)) };
    },

    async listImages({ enabledOnly, page }, context) {
      const filter = { workspaceId: workspaceOf(callOf(context)), enabledOnly };
      if (page === undefined) {
        const images: Image[] = [];
        let last: ImageView | undefined;
        do {
          const read = await store.images.list(filter, last, wholeListPage);
          for (const image of read) images.push(toImage(image));
          last = read.length === wholeListPage ? read.at(-1) : undefined;
        } while (last);
        return { images, total: images.length, nextCursor: "" };
      }
      const { rows, nextCursor } = await readPage(page, (limit, after) => store.images.list(filter, after, limit));
      return { images: rows.map(toImage), total: await store.images.count(filter), nextCursor };
    },

    async updateImage(request, context) {
      return { image: toImage(await updateImage(o, callOf(context), request)) };
    },

    async deleteImage({ imageId }, context) {
      await deleteImage(store, callOf(context), imageId);
      return {};
    },

    async resolveImage({ imageId, image: nameOrId, orDefault }, context) {
      const call = callOf(context);
      const image = imageId
        ? await findImage(store, call, imageId)
        : await findImageByName(store, call, nameOrId, orDefault);
      if (!image.enabled) {
        throw new DomainError("IMAGE_DISABLED", "The image is disabled.", {
          hint: "Enable it with PUT /sandbox-images/{id}, or use another image.",
        });
      }
      return { image: toResolvedImage(image) };
    },
  } satisfies Partial<ServiceImpl<typeof ImageRegistryService>>;
}
