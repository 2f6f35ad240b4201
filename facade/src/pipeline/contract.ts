import type { DomainError } from "@sandgate/kit/base/domain-error";

// What the facade relies on in the services' contracts. An empty text in a message stands for null where the public field may
// be null.

/** The value of a field that its service always sets. */
export function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("A service left out a field that it always sets.");
  return value;
}

/** The longest id the contracts take. Ids are opaque, so a longer one is just not found. */
const maxIdLength = 128;

/** The id as it is. Throws `missing` for one that can't be anything's. */
export function opaqueId(id: string, missing: DomainError): string {
  if (id === "" || id.length > maxIdLength) throw missing;
  return id;
}
