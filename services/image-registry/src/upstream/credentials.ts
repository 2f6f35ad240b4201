import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import type { RegistryAddress } from "@sandgate/registry-client/registry-address";
import { type Credential, type RegistryClient, RegistryError } from "@sandgate/registry-client/registry-client";

/**
 * Tries a credential. Throws VALIDATION_ERROR when the registry refuses it, UPSTREAM_ERROR when it can't be reached.
 */
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
        throw invalid("password", "was refused by the registry for this user name");
      case "refused_address":
        throw invalid("url", "leads to an address that an operator has not allowed");
      case "not_found":
        throw invalid("url", "is not the address of a registry");
      case "unreachable":
        throw new DomainError("UPSTREAM_ERROR", error.message, {
          hint: "Check the url, or try again once the registry answers.",
          cause: error,
        });
    }
  }
}
