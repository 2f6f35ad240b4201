import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import type { AllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { findUrlIssue, parseRegistryUrl, type RegistryAddress } from "@sandgate/registry-client/registry-address";
import { type Credential, type RegistryClient, RegistryError } from "@sandgate/registry-client/registry-client";

interface SealedCredential {
  readonly id: string;
  readonly workspaceId: string;
  readonly username: string;
  readonly sealedPassword: Uint8Array;
}

function placeOf({ id, workspaceId }: { readonly id: string; readonly workspaceId: string }) {
  return { service: "image-registry", table: "registries", record: id, workspace: workspaceId };
}

/** Seals the password of a registry for its record. */
export function sealPassword(keyring: Keyring, of: { id: string; workspaceId: string }, password: string): Uint8Array {
  return keyring.seal(Buffer.from(password), placeOf(of));
}

export function openCredential(keyring: Keyring, registry: SealedCredential): Credential {
  const password = Buffer.from(keyring.open(registry.sealedPassword, placeOf(registry))).toString();
  return { username: registry.username, password };
}

/** Where a registry is, by its URL. Throws VALIDATION_ERROR on a URL that is none, or that an operator has not allowed. */
export function readRegistryUrl(url: string, allowed: AllowedHosts): RegistryAddress {
  const address = parseRegistryUrl(url);
  if (address === undefined) throw invalid("url", "must be [http(s)://]host[:port]");
  const issue = findUrlIssue(address, allowed);
  if (issue !== undefined) throw invalid("url", issue);
  return address;
}

/** Tries a credential. Throws VALIDATION_ERROR when the registry refuses it, UPSTREAM_ERROR when it can't be reached. */
export async function tryCredential(
  client: RegistryClient,
  address: RegistryAddress,
  credential: Credential,
  signal: AbortSignal,
): Promise<void> {
  try {
    await client.checkCredential(address, credential, signal);
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    switch (error.problem) {
      case "unauthorized":
        throw invalid("password", "was refused by the registry, for this user name");
      case "refused_address":
        throw invalid("url", "leads to an address that an operator has not allowed");
      case "not_found":
        throw invalid("url", "is not the address of a registry");
      case "unreachable":
        throw new DomainError("UPSTREAM_ERROR", error.message, {
          hint: "Check the url, and try again when the registry answers.",
          cause: error,
        });
    }
  }
}
