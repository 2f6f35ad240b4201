import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { readPage } from "@sandgate/kit/base/page";
import type { ServiceContext } from "@sandgate/kit/process/service";
import { callOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { createRunIdempotent } from "@sandgate/kit/rpc/idempotency";
import { CreateRegistryResponseSchema, ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import type { RegistryClient } from "@sandgate/registry-client/registry-client";
import type { RegistryRecord } from "../domain/registries.ts";
import { toAuthorizedPull, toRegistry } from "../messages.ts";
import type { ImageRegistrySettings } from "../settings.ts";
import type { ImageRegistryStore } from "../store/store.ts";
import { createAuthorizePull } from "../usecases/pulls.ts";
import { createRegistry, deleteRegistry, findRegistry, updateRegistry } from "../usecases/registries.ts";

const { method } = ImageRegistryService;

/** Answers the calls about registry credentials and pulls. */
export function createRegistryHandlers(
  context: ServiceContext<ImageRegistrySettings, ImageRegistryStore>,
  client: RegistryClient,
) {
  const { store } = context;
  const runIdempotent = createRunIdempotent(context);
  const workspaces = createClient(WorkspaceService, context.transport("workspace"));
  const o = { ...context, client, workspaces };
  const authorizePull = createAuthorizePull(o);
  return {
    async createRegistry(request, context) {
      const call = callOf(context);
      const toResponse = (registry: RegistryRecord) =>
        create(CreateRegistryResponseSchema, { registry: toRegistry(registry) });
      return runIdempotent(call, method.createRegistry, request, async (recordFor) =>
        toResponse(await createRegistry(o, call, request, (registry) => recordFor(toResponse(registry)))),
      );
    },

    async getRegistry({ registryId }, context) {
      return { registry: toRegistry(await findRegistry(store, callOf(context), registryId)) };
    },

    async listRegistries({ page }, context) {
      const workspaceId = workspaceOf(callOf(context));
      const { rows, nextCursor } = await readPage(page, (limit, after) =>
        store.registries.list(workspaceId, after, limit),
      );
      return { registries: rows.map(toRegistry), nextCursor };
    },

    async updateRegistry(request, context) {
      return { registry: toRegistry(await updateRegistry(o, callOf(context), request)) };
    },

    async deleteRegistry({ registryId }, context) {
      await deleteRegistry(store, callOf(context), registryId);
      return {};
    },

    async authorizePull(request, context) {
      const { pull, credential } = await authorizePull(request, callOf(context).signal);
      return toAuthorizedPull(pull, credential);
    },

    async recordVerifiedLayers({ registryHost, layers }) {
      await store.verifiedLayers.put(registryHost, layers, new Date());
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof ImageRegistryService>>;
}
