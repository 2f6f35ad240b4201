import { DomainError } from "@sandgate/kit/base/domain-error";
import type { PublicReason } from "@sandgate/kit/base/reasons";

// In the messages of all contracts an empty string stands for null where the public field may be null.

/** The value of a field that its service always sets. */
export function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("A service did not set a field that it always sets.");
  return value;
}

/** The longest id that all contracts accept. Ids and names are shorter, so a longer one is simply not found. */
const maxIdLength = 64;

/** The id unchanged. Throws a DomainError with this reason and message for an id that nothing can have. */
export function opaqueId(id: string, missing: PublicReason, message: string): string {
  if (id === "" || id.length > maxIdLength) throw new DomainError(missing, message);
  return id;
}
