import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import type { RegistryAddress } from "@sandgate/registry-client/registry-address";
import { type Credential, type RegistryClient, RegistryError } from "@sandgate/registry-client/registry-client";

/**
 * Tries a credential. Throws VALIDATION_ERROR when the registry refuses it, UPSTREAM_ERROR when it can't be reached or
 * takes no requests for now.
 */
export async function tryCredential(
  client: Pick<RegistryClient, "checkCredential">,
  address: RegistryAddress,
  credential: Credential,
  signal: AbortSignal,
): Promise<void> {
  try {
    await client.checkCredential(address, credential, signal);
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    throw refusalOf(error);
  }
}

function refusalOf(error: RegistryError): DomainError {
  switch (error.problem) {
    case "unauthorized":
      return invalid("password", "was refused by the registry for this user name");
    case "refused_address":
      return invalid("url", "leads to an address that an operator has not allowed");
    case "not_found":
      return invalid("url", "is not the address of a registry");
    case "rate_limited":
    case "unreachable":
      return new DomainError("UPSTREAM_ERROR", error.message, {
        hint:
          error.problem === "rate_limited"
            ? "Try again later."
            : "Check the url, or try again once the registry answers.",
        retryAfterSeconds: error.retryAfterSeconds,
        callersFault: true,
        cause: error,
      });
  }
}
