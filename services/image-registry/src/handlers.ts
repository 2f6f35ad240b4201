import { create, type DescMethod } from "@bufbuild/protobuf";
import { createClient, type ServiceImpl } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { readPage } from "@sandgate/kit/base/page";
import type { ServiceContext } from "@sandgate/kit/process/service";
import { requireRoleFor } from "@sandgate/kit/rpc/access";
import { type Call, callOf, onBehalfOf, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { runIdempotent } from "@sandgate/kit/rpc/idempotency";
import { retryWhileStale } from "@sandgate/kit/storage/optimistic";
import { Role } from "@sandgate/proto/common/v1/access";
import {
  CreateImageResponseSchema,
  CreateRegistryResponseSchema,
  type Image,
  ImageRegistryService,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { createGuardedRequest } from "@sandgate/registry-client/guarded-request";
import { canonicalHost, parseRegistryUrl, type RegistryAddress } from "@sandgate/registry-client/registry-address";
import { type Credential, createRegistryClient } from "@sandgate/registry-client/registry-client";
import { tooManyImages, tooManyRegistries } from "./domain/caps.ts";
import { openCredential } from "./domain/credentials.ts";
import { checkRegistryHost, newImage, readChangedImage, readNewImage } from "./domain/images.ts";
import { changeRegistry, newRegistry, readChangedRegistry, readNewRegistry } from "./domain/registries.ts";
import { imageChanged, registryChanged } from "./events.ts";
import { toAuthorizedPull, toImage, toRegistry, toResolvedImage } from "./messages.ts";
import type { ImageRegistrySettings } from "./settings.ts";
import type { ImageRecord, ImageRegistryStore, ImageView, RegistryRecord, RegistryVersion } from "./store/store.ts";
import { tryCredential } from "./upstream/credentials.ts";
import { createPullAuthorizer, type PullRegistry } from "./upstream/pulls.ts";

const { method } = ImageRegistryService;
/** How many images of a whole list are read at once. */
const wholeListPage = 100;

/** Answers the service's calls. */
export function createHandlers({
  store,
  keyring,
  transport,
  settings: { allowedHosts, caps },
}: ServiceContext<ImageRegistrySettings, ImageRegistryStore>): ServiceImpl<typeof ImageRegistryService> {
  const client = createRegistryClient(createGuardedRequest(allowedHosts), allowedHosts);
  const authorizePull = createPullAuthorizer(client, store);
  const workspaces = createClient(WorkspaceService, transport("workspace"));

  /** Tries a credential for somebody who may lose the role that the method needs in the seconds that this takes. */
  async function tryCredentialFor(
    call: Call,
    descriptor: DescMethod,
    address: RegistryAddress,
    credential: Credential,
  ): Promise<void> {
    await tryCredential(client, address, credential, call.signal);
    const asked = { workspaceIds: [workspaceOf(call)] };
    const [workspace] = (await workspaces.batchGetWorkspaces(asked, onBehalfOf(call))).workspaces;
    requireRoleFor(descriptor, workspace?.role ?? Role.UNSPECIFIED);
  }

  /** An image that the call's workspace sees. */
  async function findImage(call: Call, imageId: string): Promise<ImageView> {
    const image = await store.findImage(imageId, workspaceOf(call));
    if (image === undefined) throw new DomainError("IMAGE_NOT_FOUND", "There is no such image in this workspace.");
    return image;
  }

  /** An image that the call's workspace may change. */
  async function findOwnImage(call: Call, imageId: string): Promise<ImageView> {
    const image = await findImage(call, imageId);
    if (image.workspaceId === "") {
      throw new DomainError("IMAGE_IMMUTABLE", "A global default image can't be changed.", {
        hint: "Register an image of your own with POST /sandbox-images.",
      });
    }
    return image;
  }

  async function findRegistry(call: Call, registryId: string): Promise<RegistryRecord> {
    const registry = await store.findRegistry(registryId, workspaceOf(call));
    if (registry === undefined) {
      throw new DomainError("REGISTRY_NOT_FOUND", "There is no such registry credential in this workspace.");
    }
    return registry;
  }

  /** The registry credential that the image names, checked to be for the registry that the image is at. */
  async function findRegistryOf(call: Call, image: ImageRecord): Promise<RegistryRecord | undefined> {
    if (image.registryId === undefined) return undefined;
    const registry = await findRegistry(call, image.registryId);
    checkRegistryHost(image, registry);
    return registry;
  }

  /** The credential to pull with; undefined for an image that anybody may pull. */
  async function findPullRegistry(workspaceId: string, registryId: string): Promise<PullRegistry | undefined> {
    if (registryId === "") return undefined;
    const record = await store.findRegistry(registryId, workspaceId);
    if (record === undefined) {
      throw new DomainError("IMAGE_PULL_UNAUTHORIZED", "The image's registry credential has been deleted.");
    }
    // What an operator allows may have changed since: that is checked when the registry is connected to.
    const address = { host: record.host, scheme: parseRegistryUrl(record.url)?.scheme };
    return { ...versionOf(record), address, credential: openCredential(keyring, record) };
  }

  return {
    async createImage(request, context) {
      const call = callOf(context);
      const workspaceId = workspaceOf(call);
      return runIdempotent({
        call,
        method: method.createImage,
        request,
        keyring,
        store,
        async work(recordFor) {
          const fields = readNewImage(request, allowedHosts);
          if (request.isDefault && !userOf(call).operator) {
            throw new DomainError("FORBIDDEN", "Only an operator may create a global default image.", {
              hint: "Leave is_default out to register the image for this workspace.",
            });
          }
          const image = newImage(fields, request.isDefault ? "" : workspaceId);
          return retryWhileStale(async () => {
            const registry = await findRegistryOf(call, image);
            const response = create(CreateImageResponseSchema, {
              image: toImage({ ...image, registryName: registry?.name }),
            });
            const outcome = await store.createImage(
              image,
              registry && versionOf(registry),
              caps,
              [imageChanged("created", image, call)],
              await recordFor(response),
            );
            if (outcome === "workspace_deleted") throw workspaceDeleted();
            if (outcome === "too_many") throw tooManyImages(caps);
            return outcome === "done" ? response : outcome;
          });
        },
      });
    },

    async getImage({ imageId }, context) {
      return { image: toImage(await findImage(callOf(context), imageId)) };
    },

    async listImages({ enabledOnly, page }, context) {
      const filter = { workspaceId: workspaceOf(callOf(context)), enabledOnly };
      if (page === undefined) {
        const images: Image[] = [];
        let last: ImageView | undefined;
        do {
          const read = await store.listImages(filter, last, wholeListPage);
          for (const image of read) images.push(toImage(image));
          last = read.length === wholeListPage ? read.at(-1) : undefined;
        } while (last);
        return { images, total: images.length, nextCursor: "" };
      }
      const { rows, nextCursor } = await readPage(page, (limit, after) => store.listImages(filter, after, limit));
      return { images: rows.map(toImage), total: await store.countImages(filter), nextCursor };
    },

    async updateImage(request, context) {
      const call = callOf(context);
      return retryWhileStale(async () => {
        const { registryName: _name, ...before } = await findOwnImage(call, request.imageId);
        const image: ImageRecord = {
          ...before,
          ...readChangedImage(before, request, allowedHosts),
          updatedAt: new Date(),
        };
        const registry = await findRegistryOf(call, image);
        const events = [imageChanged("updated", { ...image, version: image.version + 1 }, call)];
        const outcome = await store.updateImage(image, registry && versionOf(registry), events);
        return outcome === "done" ? { image: toImage({ ...image, registryName: registry?.name }) } : outcome;
      });
    },

    async deleteImage({ imageId }, context) {
      const call = callOf(context);
      return retryWhileStale(async () => {
        const image = await findOwnImage(call, imageId);
        const events = [imageChanged("deleted", { ...image, version: image.version + 1 }, call)];
        const outcome = await store.deleteImage(imageId, image.version, events);
        return outcome === "done" ? {} : outcome;
      });
    },

    async createRegistry(request, context) {
      const call = callOf(context);
      const workspaceId = workspaceOf(call);
      return runIdempotent({
        call,
        method: method.createRegistry,
        request,
        keyring,
        store,
        async work(recordFor) {
          const fields = readNewRegistry(request, allowedHosts);
          await tryCredentialFor(call, method.createRegistry, fields.address, fields);
          const registry = newRegistry(keyring, workspaceId, fields);
          const response = create(CreateRegistryResponseSchema, { registry: toRegistry(registry) });
          const events = [registryChanged("created", registry, call)];
          const outcome = await store.createRegistry(registry, caps, events, await recordFor(response));
          if (outcome === "workspace_deleted") throw workspaceDeleted();
          if (outcome === "name_taken") throw nameTaken(registry.name);
          if (outcome === "too_many") throw tooManyRegistries(caps);
          return response;
        },
      });
    },

    async getRegistry({ registryId }, context) {
      return { registry: toRegistry(await findRegistry(callOf(context), registryId)) };
    },

    async listRegistries({ page }, context) {
      const workspaceId = workspaceOf(callOf(context));
      const { rows, nextCursor } = await readPage(page, (limit, after) =>
        store.listRegistries(workspaceId, after, limit),
      );
      return { registries: rows.map(toRegistry), nextCursor };
    },

    async updateRegistry(request, context) {
      const call = callOf(context);
      return retryWhileStale(async () => {
        const before = await findRegistry(call, request.registryId);
        const fields = readChangedRegistry(before, request, allowedHosts);
        const { address, username, password } = fields;
        if (password !== undefined) {
          await tryCredentialFor(call, method.updateRegistry, address, { username, password });
        }
        const registry = changeRegistry(keyring, before, fields);
        const events = [registryChanged("updated", { ...registry, version: registry.version + 1 }, call)];
        const outcome = await store.updateRegistry(registry, events);
        switch (outcome) {
          case "done":
            return { registry: toRegistry(registry) };
          case "stale":
            return outcome;
          case "name_taken":
            throw nameTaken(registry.name);
          case "in_use":
            throw new DomainError("CONFLICT", `Images at ${before.host} use this registry credential.`, {
              hint: "Give those images another credential first, or add a new one for the other host.",
            });
        }
      });
    },

    async deleteRegistry({ registryId }, context) {
      const call = callOf(context);
      return retryWhileStale(async () => {
        const registry = await findRegistry(call, registryId);
        const events = [registryChanged("deleted", { ...registry, version: registry.version + 1 }, call)];
        const outcome = await store.deleteRegistry(registryId, registry.version, events);
        if (outcome === "in_use") {
          throw new DomainError("CONFLICT", "An image uses this registry credential.", {
            hint: "Delete the images that use it, or clear their registry_id, first.",
          });
        }
        return outcome === "done" ? {} : outcome;
      });
    },

    async resolveImage({ imageId }, context) {
      const image = await findImage(callOf(context), imageId);
      if (!image.enabled) {
        throw new DomainError("IMAGE_DISABLED", "The image is disabled.", {
          hint: "Enable it with PUT /sandbox-images/{id}, or use another image.",
        });
      }
      return { image: toResolvedImage(image) };
    },

    async authorizePull({ workspaceId, registryId, reference }, context) {
      const registry = await findPullRegistry(workspaceId, registryId);
      const pull = await authorizePull({ workspaceId, reference, registry }, callOf(context).signal);
      return toAuthorizedPull(pull, registry?.credential);
    },

    async recordVerifiedLayers({ registryHost, layers }) {
      await store.putVerifiedLayers(canonicalHost(registryHost), layers, new Date());
      return {};
    },
  };
}

function versionOf({ id, version }: RegistryRecord): RegistryVersion {
  return { id, version };
}

function workspaceDeleted(): DomainError {
  return new DomainError("WORKSPACE_FORBIDDEN", "The workspace has been deleted.");
}

function nameTaken(name: string): DomainError {
  return new DomainError("CONFLICT", `The workspace already has a registry credential named "${name}".`);
}
