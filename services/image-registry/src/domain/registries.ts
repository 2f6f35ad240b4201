import { invalid } from "@sandgate/kit/base/domain-error";
import type { AllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { findUrlIssue, parseRegistryUrl, type RegistryAddress } from "@sandgate/registry-client/registry-address";

/** Where a registry is, by its URL. Throws VALIDATION_ERROR for a malformed URL, or one that an operator has not allowed. */
export function readRegistryUrl(url: string, allowed: AllowedHosts): RegistryAddress {
  const address = parseRegistryUrl(url);
  if (address === undefined) throw invalid("url", "must be [http(s)://]host[:port]");
  const issue = findUrlIssue(address, allowed);
  if (issue !== undefined) throw invalid("url", issue);
  return address;
}
