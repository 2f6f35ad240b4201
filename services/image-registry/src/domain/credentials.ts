import type { Keyring } from "@sandgate/kit/storage/sealing";
import type { Credential } from "@sandgate/registry-client/registry-client";

interface SealedCredential {
  readonly id: string;
  readonly workspaceId: string;
  readonly username: string;
  readonly sealedPassword: Uint8Array;
}

function contextOf({ id, workspaceId }: { readonly id: string; readonly workspaceId: string }) {
  return { service: "image-registry", table: "registries", record: id, workspace: workspaceId };
}

/** Seals the password of a registry for its record. */
export function sealPassword(keyring: Keyring, of: { id: string; workspaceId: string }, password: string): Uint8Array {
  return keyring.seal(Buffer.from(password), contextOf(of));
}

export function openCredential(keyring: Keyring, registry: SealedCredential): Credential {
  const password = Buffer.from(keyring.open(registry.sealedPassword, contextOf(registry))).toString();
  return { username: registry.username, password };
}
