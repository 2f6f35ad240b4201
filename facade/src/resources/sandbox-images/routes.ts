import { Readable } from "node:stream";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { FastifyReply } from "fastify";
import type { Static } from "typebox";
import { callFor } from "../../pipeline/base/request-context.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { readInChunks } from "../../pipeline/messages/pages.ts";
import { nullsOf } from "../../pipeline/messages/request-mapper.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { CreatingInWorkspaceHeaders, NoContent, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { registryIdOf } from "../registries/mapping.ts";
import { fromCreateBody, fromUpdateBody, imageIdOf, toImage } from "./mapping.ts";
import { CreateImageBody, Image, ImageList, ImageParams, ImageQuery, UpdateImageBody } from "./schemas.ts";

const { method: rpc } = ImageRegistryService;
const tags = ["Sandbox images"];
const defaultPageLimit = 100;
/** As Fastify takes it. It compiles a schema once for each object. */
const imageSchema = { ...Image };

interface ImageChunk {
  rows: Static<typeof Image>[];
  /** Of the whole list. */
  total: number;
  nextCursor: string;
}

/** Sends an ImageList. There may be very many images, so it is serialized chunk by chunk. */
async function sendImages(
  reply: FastifyReply,
  chunks: AsyncIterable<ImageChunk>,
  isWhole: boolean,
): Promise<FastifyReply> {
  const serialize = reply.compileSerializationSchema(imageSchema);
  const serialized: Buffer[] = [];
  let count = 0;
  let total = 0;
  let nextCursor = "";
  for await (const { rows, ...chunk } of chunks) {
    const comma = count > 0 && rows.length > 0 ? "," : "";
    serialized.push(Buffer.from(comma + rows.map((image) => serialize(image)).join(",")));
    count += rows.length;
    total = isWhole ? count : chunk.total;
    nextCursor = chunk.nextCursor;
  }
  const end = `],"total":${total},"next_cursor":${JSON.stringify(nextCursor || null)}}`;
  const body = [Buffer.from('{"images":['), ...serialized, Buffer.from(end)];
  reply.header(
    "content-length",
    body.reduce((bytes, { byteLength }) => bytes + byteLength, 0),
  );
  return reply.type("application/json; charset=utf-8").send(Readable.from(body));
}

export const sandboxImageRoutes: RoutePlugin = async (app, { clients: { imageRegistry } }) => {
  app.post(
    "/sandbox-images",
    {
      config: {
        rules: {
          rpc: rpc.createImage,
          audit: "image.create",
          errors: ["FORBIDDEN", "REGISTRY_NOT_FOUND", "CONFLICT"],
        },
      },
      schema: {
        tags,
        summary: "Register a sandbox image",
        headers: CreatingInWorkspaceHeaders,
        body: CreateImageBody,
        response: { 201: Image },
      },
    },
    async (request, reply) => {
      const { body } = request;
      const { image } = await imageRegistry.createImage(
        {
          ...fromCreateBody(body),
          ...(body.registry_id != null && { registryId: registryIdOf(body.registry_id) }),
        },
        callFor(request),
      );
      return reply.code(201).send(toImage(present(image)));
    },
  );

  app.get(
    "/sandbox-images",
    {
      config: { rules: { rpc: rpc.listImages, audit: "image.list" } },
      schema: {
        tags,
        summary: "List sandbox images",
        description: "The workspace's images and the global defaults; all of them without limit and cursor.",
        headers: WorkspaceHeaders,
        querystring: ImageQuery,
        response: { 200: ImageList },
      },
    },
    async (request, reply) => {
      const { enabled_only: enabledOnly, limit, cursor } = request.query;
      const isWhole = limit === undefined && cursor === undefined;
      const page = { limit: isWhole ? Number.POSITIVE_INFINITY : (limit ?? defaultPageLimit), cursor: cursor ?? "" };
      const chunks = readInChunks(page, async (chunk) => {
        const { images, total, nextCursor } = await imageRegistry.listImages(
          { enabledOnly, page: chunk },
          callFor(request),
        );
        return { rows: images.map(toImage), total, nextCursor };
      });
      return sendImages(reply, chunks, isWhole);
    },
  );

  app.get(
    "/sandbox-images/:image_id",
    {
      config: { rules: { rpc: rpc.getImage, audit: "image.read", errors: ["IMAGE_NOT_FOUND"] } },
      schema: {
        tags,
        summary: "Read a sandbox image",
        headers: WorkspaceHeaders,
        params: ImageParams,
        response: { 200: Image },
      },
    },
    async (request) => {
      const imageId = imageIdOf(request.params.image_id);
      const { image } = await imageRegistry.getImage({ imageId }, callFor(request));
      return toImage(present(image));
    },
  );

  app.put(
    "/sandbox-images/:image_id",
    {
      config: {
        rules: {
          rpc: rpc.updateImage,
          audit: "image.update",
          errors: ["IMAGE_NOT_FOUND", "IMAGE_IMMUTABLE", "REGISTRY_NOT_FOUND"],
        },
      },
      schema: {
        tags,
        summary: "Change a sandbox image",
        description: "Fields that are missing stay as they are; null unsets a field. Running sandboxes don't change.",
        headers: WorkspaceHeaders,
        params: ImageParams,
        body: UpdateImageBody,
        response: { 200: Image },
      },
    },
    async (request) => {
      const { body } = request;
      const { image } = await imageRegistry.updateImage(
        {
          ...fromUpdateBody(body),
          imageId: imageIdOf(request.params.image_id),
          ...(body.registry_id != null && { registryId: registryIdOf(body.registry_id) }),
          clear: nullsOf(UpdateImageBody, body),
        },
        callFor(request),
      );
      return toImage(present(image));
    },
  );

  app.delete(
    "/sandbox-images/:image_id",
    {
      config: {
        rules: {
          rpc: rpc.deleteImage,
          audit: "image.delete",
          errors: ["IMAGE_NOT_FOUND", "IMAGE_IMMUTABLE"],
        },
      },
      schema: {
        tags,
        summary: "Delete a sandbox image",
        description: "Running sandboxes keep running.",
        headers: WorkspaceHeaders,
        params: ImageParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      const imageId = imageIdOf(request.params.image_id);
      await imageRegistry.deleteImage({ imageId }, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
