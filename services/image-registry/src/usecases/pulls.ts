import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import type { Credential, RegistryClient } from "@sandgate/registry-client/registry-client";
import { openCredential } from "../domain/credentials.ts";
import { addressOf } from "../domain/registries.ts";
import type { ImageRegistryStore } from "../store/store.ts";
import { type AuthorizedPull, createPullAuthorizer, type PullRegistry } from "../upstream/pulls.ts";
import { versionOf } from "./registries.ts";

interface PullOrder {
  readonly workspaceId: string;
  /** Empty: without a credential. */
  readonly registryId: string;
  readonly reference: string;
}

/** Authorizes pulls with the credentials that workspaces have stored. */
export function createAuthorizePull(o: { store: ImageRegistryStore; keyring: Keyring; client: RegistryClient }) {
  const { store, keyring } = o;
  const authorize = createPullAuthorizer(o.client, store.verifiedLayers.find);

  async function findRegistry({ workspaceId, registryId }: PullOrder): Promise<PullRegistry | undefined> {
    if (registryId === "") return undefined;
    const record = await store.registries.find(registryId, workspaceId);
    if (record === undefined) {
      throw new DomainError("IMAGE_PULL_UNAUTHORIZED", "The image's registry credential has been deleted.");
    }
    // Whether an operator still allows it is checked when it is connected to.
    return { ...versionOf(record), address: addressOf(record), credential: openCredential(keyring, record) };
  }

  /**
   * Throws IMAGE_PULL_UNAUTHORIZED, also for a deleted credential, IMAGE_NOT_FOUND_IN_REGISTRY or REGISTRY_UNREACHABLE.
   */
  return async function authorizePull(
    order: PullOrder,
    signal: AbortSignal,
  ): Promise<{ pull: AuthorizedPull; credential: Credential | undefined }> {
    const registry = await findRegistry(order);
    const { workspaceId, reference } = order;
    return { pull: await authorize({ workspaceId, reference, registry }, signal), credential: registry?.credential };
  };
}
