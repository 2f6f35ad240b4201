import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { createClient, type ServiceImpl } from "@connectrpc/connect";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { DomainError, invalid, messageOf } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { decodeCursor, pageLimit, toPage } from "@sandgate/kit/base/page";
import { defineSettings, list, SettingsError, text } from "@sandgate/kit/base/settings";
import { defineService, type ServiceContext } from "@sandgate/kit/process/service";
import { type Call, callOf, onBehalfOf, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { runIdempotent } from "@sandgate/kit/rpc/idempotency";
import { Role } from "@sandgate/proto/common/v1/access";
import {
  type AuthorizePullResponse,
  AuthorizePullResponseSchema,
  CreateImageResponseSchema,
  CreateRegistryResponseSchema,
  type Image,
  ImageRegistryService,
  ImageSchema,
  type Registry,
  RegistrySchema,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { type AllowedHosts, readAllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { createGuardedRequest } from "@sandgate/registry-client/guarded-request";
import { parseRegistryUrl, type RegistryAddress } from "@sandgate/registry-client/registry-address";
import { type Credential, createRegistryClient } from "@sandgate/registry-client/registry-client";
import { openCredential, readRegistryUrl, sealPassword, tryCredential } from "./domain/credentials.ts";
import { checkRegistryHost, fullReferenceOf, readChangedImage, readNewImage } from "./domain/images.ts";
import { commit } from "./domain/retry-stale.ts";
import { readSeed } from "./domain/seed.ts";
import { imageChanged, stagePurged } from "./events.ts";
import type { ImageRecord, ImageRegistryStore, ImageView, RegistryRecord } from "./store/store.ts";
import { createPullAuthorizer, type PullRegistry } from "./upstream/pulls.ts";

export const imageRegistrySettings = defineSettings({
  allowedHosts: list("SANDGATE_REGISTRY_ALLOW", {
    default: [],
    doc: "Registries that may be at private addresses or without TLS: a comma list of host[:port] or CIDR.",
  }),
  defaultImage: text("SANDGATE_DEFAULT_IMAGE", {
    optional: true,
    doc: "A global default image to make at the first start, as name=reference, or name=reference,port with its readiness port.",
  }),
});

/** Rows of each kind that a purge removes in one transaction. */
const purgeSlice = 200;

/** Opens the service that owns sandbox images, the global defaults among them, and the credentials of registries. */
export const imageRegistryService = defineService({
  name: "image-registry",
  settings: imageRegistrySettings,
  parseSettings({ allowedHosts, defaultImage }) {
    const allowed = parseSetting("SANDGATE_REGISTRY_ALLOW", () => readAllowedHosts(allowedHosts));
    const seed = defaultImage && parseSetting("SANDGATE_DEFAULT_IMAGE", () => readSeed(defaultImage, allowed));
    return { allowed, seed };
  },
  stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
  open(context) {
    const { store, settings } = context;
    return {
      routes(router) {
        router.service(ImageRegistryService, createHandlers(context, settings.allowed));
      },
      async start() {
        if (settings.seed) {
          const image = newImage(settings.seed, "");
          await store.seedDefaultImage(image, [imageChanged("created", image)]);
        }
        return [];
      },
      purge: {
        store,
        stagePurged,
        async purge(workspaceId, signal) {
          while (!(await store.purgeSlice(workspaceId, purgeSlice))) if (signal.aborted) return false;
          return true;
        },
      },
      async dependencies() {
        return { database: await stateOf(store.listOpenPurges()) };
      },
    };
  },
});

function createHandlers(
  { store, keyring, transport }: ServiceContext<unknown, ImageRegistryStore>,
  allowed: AllowedHosts,
): ServiceImpl<typeof ImageRegistryService> {
  const client = createRegistryClient(createGuardedRequest(allowed), allowed);
  const authorizePull = createPullAuthorizer(client);
  const workspaces = createClient(WorkspaceService, transport("workspace"));

  /** Tries a credential for an admin, who may have lost that role in the seconds that this takes. */
  async function tryCredentialFor(call: Call, address: RegistryAddress, credential: Credential): Promise<void> {
    await tryCredential(client, address, credential, call.signal);
    const asked = { workspaceIds: [workspaceOf(call)] };
    const [workspace] = (await workspaces.batchGetWorkspaces(asked, onBehalfOf(call))).workspaces;
    const role = workspace?.role ?? Role.UNSPECIFIED;
    if (role === Role.UNSPECIFIED) {
      throw new DomainError("WORKSPACE_FORBIDDEN", "You are no longer a member of this workspace.");
    }
    if (role < Role.ADMIN) {
      throw new DomainError("INSUFFICIENT_ROLE", "This needs the role admin in the workspace.");
    }
  }

  /** An image that the call's workspace sees. */
  async function imageOf(call: Call, imageId: string): Promise<ImageView> {
    const image = await store.findImage(imageId, workspaceOf(call));
    if (image === undefined) throw new DomainError("IMAGE_NOT_FOUND", "There is no such image in this workspace.");
    return image;
  }

  /** An image that the call's workspace may change. */
  async function ownImageOf(call: Call, imageId: string): Promise<ImageView> {
    const image = await imageOf(call, imageId);
    if (image.workspaceId === "") {
      throw new DomainError("IMAGE_IMMUTABLE", "A global default image can't be changed.", {
        hint: "Register an image of your own with POST /sandbox-images.",
      });
    }
    return image;
  }

  async function registryOf(call: Call, registryId: string): Promise<RegistryRecord> {
    const registry = await store.findRegistry(registryId, workspaceOf(call));
    if (registry === undefined) {
      throw new DomainError("REGISTRY_NOT_FOUND", "There is no such registry credential in this workspace.");
    }
    return registry;
  }

  /** The registry that the image names, checked to be the one it is at. */
  async function registryFor(call: Call, image: ImageRecord): Promise<RegistryRecord | undefined> {
    if (image.registryId === undefined) return undefined;
    const registry = await registryOf(call, image.registryId);
    checkRegistryHost(image, registry);
    return registry;
  }

  return {
    async createImage(request, context) {
      const call = callOf(context);
      const workspaceId = workspaceOf(call);
      return runIdempotent({
        call,
        method: ImageRegistryService.method.createImage,
        request,
        keyring,
        store,
        async work(recordFor) {
          const fields = readNewImage(request, allowed);
          if (request.isDefault && !userOf(call).operator) {
            throw new DomainError("FORBIDDEN", "Only an operator may make a global default image.", {
              hint: "Leave is_default out to register the image for this workspace.",
            });
          }
          const image = newImage(fields, request.isDefault ? "" : workspaceId);
          return commit(async () => {
            const registry = await registryFor(call, image);
            const response = create(CreateImageResponseSchema, {
              image: toImage({ ...image, registryName: registry?.name }),
            });
            const events = [imageChanged("created", image, call)];
            const outcome = await store.createImage(
              image,
              registry && versionOf(registry),
              events,
              await recordFor(response),
            );
            if (outcome === "deleted") throw workspaceDeleted();
            return outcome === "done" ? response : undefined;
          });
        },
      });
    },

    async getImage({ imageId }, context) {
      return { image: toImage(await imageOf(callOf(context), imageId)) };
    },

    async listImages({ enabledOnly, page }, context) {
      const filter = { workspaceId: workspaceOf(callOf(context)), enabledOnly };
      if (page === undefined) {
        const images = await store.listImages(filter, undefined, Number.MAX_SAFE_INTEGER);
        return { images: images.map(toImage), total: images.length, nextCursor: "" };
      }
      const after = decodeCursor(page.cursor);
      const limit = pageLimit(page.limit);
      const { rows, nextCursor } = toPage(await store.listImages(filter, after, limit + 1), limit, placeOf);
      return { images: rows.map(toImage), total: await store.countImages(filter), nextCursor };
    },

    async updateImage(request, context) {
      const call = callOf(context);
      return commit(async () => {
        const { registryName: _name, ...before } = await ownImageOf(call, request.imageId);
        const image: ImageRecord = {
          ...before,
          ...readChangedImage(before, request, allowed),
          updatedAt: new Date(),
        };
        const registry = await registryFor(call, image);
        const events = [imageChanged("updated", { ...image, version: image.version + 1 }, call)];
        const outcome = await store.updateImage(image, registry && versionOf(registry), events);
        return outcome === "done" ? { image: toImage({ ...image, registryName: registry?.name }) } : undefined;
      });
    },

    async deleteImage({ imageId }, context) {
      const call = callOf(context);
      return commit(async () => {
        const image = await ownImageOf(call, imageId);
        const events = [imageChanged("deleted", { ...image, version: image.version + 1 }, call)];
        return (await store.deleteImage(imageId, image.version, events)) === "done" ? {} : undefined;
      });
    },

    async createRegistry(request, context) {
      const call = callOf(context);
      const workspaceId = workspaceOf(call);
      return runIdempotent({
        call,
        method: ImageRegistryService.method.createRegistry,
        request,
        keyring,
        store,
        async work(recordFor) {
          const { name, url, username, password } = request;
          const address = readRegistryUrl(url, allowed);
          await tryCredentialFor(call, address, { username, password });
          const [id, now] = [newId(), new Date()];
          const registry: RegistryRecord = {
            id,
            workspaceId,
            name,
            url,
            host: address.host,
            username,
            sealedPassword: sealPassword(keyring, { id, workspaceId }, password),
            createdAt: now,
            updatedAt: now,
            version: 1,
          };
          const response = create(CreateRegistryResponseSchema, { registry: toRegistry(registry) });
          const outcome = await store.createRegistry(registry, await recordFor(response));
          if (outcome === "deleted") throw workspaceDeleted();
          if (outcome === "name_taken") throw nameTaken(name);
          return response;
        },
      });
    },

    async getRegistry({ registryId }, context) {
      return { registry: toRegistry(await registryOf(callOf(context), registryId)) };
    },

    async listRegistries({ page }, context) {
      const after = decodeCursor(page?.cursor ?? "");
      const limit = pageLimit(page?.limit);
      const read = await store.listRegistries(workspaceOf(callOf(context)), after, limit + 1);
      const { rows, nextCursor } = toPage(read, limit, placeOf);
      return { registries: rows.map(toRegistry), nextCursor };
    },

    async updateRegistry(request, context) {
      const call = callOf(context);
      return commit(async () => {
        const before = await registryOf(call, request.registryId);
        const { name = before.name, url = before.url, username = before.username, password } = request;
        const address = readRegistryUrl(url, allowed);
        if (password === undefined && (url !== before.url || username !== before.username)) {
          throw invalid("password", "must be given again when url or username changes");
        }
        if (password !== undefined) await tryCredentialFor(call, address, { username, password });
        const registry: RegistryRecord = {
          ...before,
          name,
          url,
          host: address.host,
          username,
          ...(password !== undefined && { sealedPassword: sealPassword(keyring, before, password) }),
          updatedAt: new Date(),
        };
        switch (await store.updateRegistry(registry)) {
          case "done":
            return { registry: toRegistry(registry) };
          case "stale":
            return undefined;
          case "name_taken":
            throw nameTaken(name);
          case "in_use":
            throw new DomainError("CONFLICT", `Images at ${before.host} use this registry credential.`, {
              hint: "Give these images another credential first, or add a new one for the other host.",
            });
        }
      });
    },

    async deleteRegistry({ registryId }, context) {
      const call = callOf(context);
      return commit(async () => {
        const { version } = await registryOf(call, registryId);
        const outcome = await store.deleteRegistry(registryId, version);
        if (outcome === "in_use") {
          throw new DomainError("CONFLICT", "An image uses this registry credential.", {
            hint: "Delete the images that use it, or clear their registry_id, first.",
          });
        }
        return outcome === "done" ? {} : undefined;
      });
    },

    async resolveImage({ imageId }, context) {
      const image = await imageOf(callOf(context), imageId);
      if (!image.enabled) {
        throw new DomainError("IMAGE_DISABLED", "The image is disabled.", {
          hint: "Enable it with PUT /sandbox-images/{id}, or use another image.",
        });
      }
      return {
        image: {
          imageId: image.id,
          reference: fullReferenceOf(image),
          memoryMb: image.memoryMb,
          ...(image.readinessPort !== undefined && { readinessPort: image.readinessPort }),
          ...(image.ttlSeconds !== undefined && { ttlSeconds: image.ttlSeconds }),
          registryId: image.registryId ?? "",
          isDefault: image.workspaceId === "",
        },
      };
    },

    async authorizePull({ workspaceId, registryId, reference }, context): Promise<AuthorizePullResponse> {
      let registry: PullRegistry | undefined;
      if (registryId !== "") {
        const record = await store.findRegistry(registryId, workspaceId);
        if (record === undefined) {
          throw new DomainError("IMAGE_PULL_UNAUTHORIZED", "The image's registry credential has been deleted.");
        }
        // What an operator allows may have changed since: that is judged when the registry is connected to.
        const address = { host: record.host, scheme: parseRegistryUrl(record.url)?.scheme };
        registry = { ...versionOf(record), address, credential: openCredential(keyring, record) };
      }
      const pull = await authorizePull({ workspaceId, reference, registry }, callOf(context).signal);
      return create(AuthorizePullResponseSchema, { ...pull, ...registry?.credential });
    },
  };
}

function newImage(fields: ReturnType<typeof readNewImage>, workspaceId: string): ImageRecord {
  const now = new Date();
  return { ...fields, id: newId(), workspaceId, createdAt: now, updatedAt: now, version: 1 };
}

function versionOf({ id, version }: RegistryRecord) {
  return { id, version };
}

function placeOf({ createdAt, id }: { createdAt: Date; id: string }) {
  return { createdAt: createdAt.getTime(), id };
}

function workspaceDeleted(): DomainError {
  return new DomainError("WORKSPACE_FORBIDDEN", "The workspace has been deleted.");
}

function nameTaken(name: string): DomainError {
  return new DomainError("CONFLICT", `The workspace has a registry credential named "${name}" already.`);
}

function toImage(image: ImageView): Image {
  return create(ImageSchema, {
    id: image.id,
    name: image.name,
    image: image.image,
    ...(image.description !== undefined && { description: image.description }),
    tag: image.tag,
    enabled: image.enabled,
    isDefault: image.workspaceId === "",
    memoryMb: image.memoryMb,
    createdAt: timestampFromDate(image.createdAt),
    updatedAt: timestampFromDate(image.updatedAt),
    ...(image.readinessPort !== undefined && { readinessPort: image.readinessPort }),
    ...(image.ttlSeconds !== undefined && { ttlSeconds: image.ttlSeconds }),
    workspaceId: image.workspaceId,
    registryId: image.registryId ?? "",
    registryName: image.registryName ?? "",
  });
}

function toRegistry({ id, name, url, username, workspaceId, createdAt, updatedAt }: RegistryRecord): Registry {
  return create(RegistrySchema, {
    id,
    name,
    url,
    username,
    workspaceId,
    createdAt: timestampFromDate(createdAt),
    updatedAt: timestampFromDate(updatedAt),
  });
}

function parseSetting<T>(name: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw new SettingsError([`${name}: ${messageOf(error)}`]);
  }
}
