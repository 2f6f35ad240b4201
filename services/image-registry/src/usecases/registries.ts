import type { DescMethod } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { DomainError, hasReason } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { requireRoleFor } from "@sandgate/kit/rpc/access";
import { type Call, onBehalfOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import { retryWhileStale } from "@sandgate/kit/storage/optimistic";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import { Role } from "@sandgate/proto/common/v1/access";
import {
  type CreateRegistryRequest,
  ImageRegistryService,
  type UpdateRegistryRequest,
} from "@sandgate/proto/imageregistry/v1/image_registry";
import type { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import type { AllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import type { RegistryAddress } from "@sandgate/registry-client/registry-address";
import type { Credential, RegistryClient } from "@sandgate/registry-client/registry-client";
import { type Quotas, tooManyRegistries, workspaceDeleted } from "../domain/quotas.ts";
import {
  changeRegistry,
  newRegistry,
  type RegistryRecord,
  type RegistryVersion,
  readChangedRegistry,
  readNewRegistry,
} from "../domain/registries.ts";
import { registryCreated, registryDeleted, registryUpdated } from "../events.ts";
import type { ImageRegistryStore } from "../store/store.ts";
import { tryCredential } from "../upstream/credentials.ts";

const { method } = ImageRegistryService;

interface Context {
  readonly store: ImageRegistryStore;
  readonly keyring: Keyring;
  readonly client: RegistryClient;
  readonly logger: Logger;
  readonly workspaces: Client<typeof WorkspaceService>;
  readonly settings: { readonly allowedHosts: AllowedHosts; readonly quotas: Quotas };
}

export function versionOf({ id, version }: RegistryRecord): RegistryVersion {
  return { id, version };
}

/** Throws REGISTRY_NOT_FOUND. */
export async function findRegistry(store: ImageRegistryStore, call: Call, registryId: string): Promise<RegistryRecord> {
  const registry = await store.registries.find(registryId, workspaceOf(call));
  if (registry === undefined) {
    throw new DomainError("REGISTRY_NOT_FOUND", "There is no such registry credential in this workspace.");
  }
  return registry;
}

/** @param recordOf the idempotency record of the response with this registry */
export async function createRegistry(
  o: Context,
  call: Call,
  request: CreateRegistryRequest,
  recordOf: (registry: RegistryRecord) => Promise<IdempotencyRecord | undefined>,
): Promise<RegistryRecord> {
  const { store, keyring, settings } = o;
  const fields = readNewRegistry(request, settings.allowedHosts);
  await tryCredentialFor(o, call, method.createRegistry, fields.address, fields);
  const registry = newRegistry(keyring, workspaceOf(call), fields);
  const events = [registryCreated(call, registry)];
  const outcome = await store.registries.create(registry, settings.quotas, events, await recordOf(registry));
  if (outcome === "workspace_deleted") throw workspaceDeleted();
  if (outcome === "name_taken") throw nameTaken(registry);
  if (outcome === "too_many") throw tooManyRegistries(settings.quotas);
  return registry;
}

export async function updateRegistry(o: Context, call: Call, request: UpdateRegistryRequest): Promise<RegistryRecord> {
  const { store, keyring, settings } = o;
  return retryWhileStale(async () => {
    const before = await findRegistry(store, call, request.registryId);
    const fields = readChangedRegistry(before, request, settings.allowedHosts);
    const { address, username, password } = fields;
    if (password !== undefined) {
      await tryCredentialFor(o, call, method.updateRegistry, address, { username, password });
    }
    const registry = changeRegistry(keyring, before, fields);
    const outcome = await store.registries.update(registry, [registryUpdated(call, registry)]);
    if (outcome === "name_taken") throw nameTaken(registry);
    if (outcome === "in_use") {
      throw new DomainError("CONFLICT", `Images at ${before.host} use this registry credential.`, {
        hint: "Give those images another credential first, or add a new one for the other host.",
      });
    }
    return outcome === "done" ? registry : outcome;
  });
}

export async function deleteRegistry(store: ImageRegistryStore, call: Call, registryId: string): Promise<void> {
  await retryWhileStale(async () => {
    const registry = await findRegistry(store, call, registryId);
    const outcome = await store.registries.delete(registryId, registry.version, [registryDeleted(call, registry)]);
    if (outcome === "in_use") {
      throw new DomainError("CONFLICT", "An image uses this registry credential.", {
        hint: "Delete the images that use it, or clear their registry_id, first.",
      });
    }
    return outcome;
  });
}

/**
 * Tries a credential, then checks the caller's role again: they may have lost it in the seconds that this takes. Logs
 * why a registry can't be asked, for whoever looks for the request's id: nothing else logs what is the caller's fault.
 */
async function tryCredentialFor(
  { client, logger, workspaces }: Context,
  call: Call,
  descriptor: DescMethod,
  address: RegistryAddress,
  credential: Credential,
): Promise<void> {
  await tryCredential(client, address, credential, call.signal).catch((error: unknown) => {
    if (hasReason(error, "UPSTREAM_ERROR")) {
      logger.warn({ request_id: call.requestId, err: error }, "a registry that a caller names can't be asked");
    }
    throw error;
  });
  const asked = { workspaceIds: [workspaceOf(call)] };
  const [workspace] = (await workspaces.batchGetWorkspaces(asked, onBehalfOf(call))).workspaces;
  requireRoleFor(descriptor, workspace?.role ?? Role.UNSPECIFIED);
}

function nameTaken({ name }: RegistryRecord): DomainError {
  return new DomainError("CONFLICT", `The workspace already has a registry credential named "${name}".`);
}
