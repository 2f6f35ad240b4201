import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { callFor } from "../../pipeline/base/request-context.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import {
  CreatingInWorkspaceHeaders,
  NoContent,
  PageQuery,
  WorkspaceHeaders,
} from "../../pipeline/validation/common-schemas.ts";
import { fromCreateBody, fromUpdateBody, registryIdOf, toRegistry } from "./mapping.ts";
import { CreateRegistryBody, Registry, RegistryList, RegistryParams, UpdateRegistryBody } from "./schemas.ts";

const { method: rpc } = ImageRegistryService;
const tags = ["Registries"];

export const registryRoutes: RoutePlugin = async (app, { clients: { imageRegistry } }) => {
  app.post(
    "/registries",
    {
      config: { rules: { rpc: rpc.createRegistry, audit: "registry.create", errors: ["CONFLICT"] } },
      schema: {
        tags,
        summary: "Add a registry credential",
        description: "The registry is asked whether the credential is valid. The password is never shown again.",
        headers: CreatingInWorkspaceHeaders,
        body: CreateRegistryBody,
        response: { 201: Registry },
      },
    },
    async (request, reply) => {
      const { registry } = await imageRegistry.createRegistry(fromCreateBody(request.body), callFor(request));
      return reply.code(201).send(toRegistry(present(registry)));
    },
  );

  app.get(
    "/registries",
    {
      config: { rules: { rpc: rpc.listRegistries, audit: "registry.list", auditReads: true } },
      schema: {
        tags,
        summary: "List registry credentials",
        headers: WorkspaceHeaders,
        querystring: PageQuery,
        response: { 200: RegistryList },
      },
    },
    async (request) => {
      const { registries, nextCursor } = await imageRegistry.listRegistries({ page: request.query }, callFor(request));
      return { registries: registries.map(toRegistry), next_cursor: nextCursor || null };
    },
  );

  app.get(
    "/registries/:registry_id",
    {
      config: {
        rules: { rpc: rpc.getRegistry, audit: "registry.read", auditReads: true, errors: ["REGISTRY_NOT_FOUND"] },
      },
      schema: {
        tags,
        summary: "Read a registry credential",
        headers: WorkspaceHeaders,
        params: RegistryParams,
        response: { 200: Registry },
      },
    },
    async (request) => {
      const registryId = registryIdOf(request.params.registry_id);
      const { registry } = await imageRegistry.getRegistry({ registryId }, callFor(request));
      return toRegistry(present(registry));
    },
  );

  app.put(
    "/registries/:registry_id",
    {
      config: {
        rules: {
          rpc: rpc.updateRegistry,
          audit: "registry.update",
          errors: ["REGISTRY_NOT_FOUND", "CONFLICT"],
        },
      },
      schema: {
        tags,
        summary: "Change a registry credential",
        description: "Fields that are missing stay as they are. A new url or username needs the password again.",
        headers: WorkspaceHeaders,
        params: RegistryParams,
        body: UpdateRegistryBody,
        response: { 200: Registry },
      },
    },
    async (request) => {
      const registryId = registryIdOf(request.params.registry_id);
      const changes = { ...fromUpdateBody(request.body), registryId };
      const { registry } = await imageRegistry.updateRegistry(changes, callFor(request));
      return toRegistry(present(registry));
    },
  );

  app.delete(
    "/registries/:registry_id",
    {
      config: {
        rules: {
          rpc: rpc.deleteRegistry,
          audit: "registry.delete",
          errors: ["REGISTRY_NOT_FOUND", "CONFLICT"],
        },
      },
      schema: {
        tags,
        summary: "Delete a registry credential",
        description: "A credential that an image uses can't be deleted.",
        headers: WorkspaceHeaders,
        params: RegistryParams,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      const registryId = registryIdOf(request.params.registry_id);
      await imageRegistry.deleteRegistry({ registryId }, callFor(request));
      return reply.code(204).send(null);
    },
  );
};
