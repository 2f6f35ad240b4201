import type { StoredKey } from "../domain/signing-keys.ts";

/** The keys of session and refresh tokens. */
export interface Keys {
  /** Adds a key unless one of its use was created after `unlessAfter`; false then. */
  add(key: StoredKey, unlessAfter: Date): Promise<boolean>;
  /** Newest first. */
  list(): Promise<StoredKey[]>;
  /** Replaces all keys with these, at once. */
  replace(keys: readonly StoredKey[]): Promise<void>;
  /** Ends every session, as of `endedAt`, and then replaces all keys with these. It may take minutes. */
  replaceAll(keys: readonly StoredKey[], endedAt: Date): Promise<void>;
  /** Ids that are unknown are ignored. */
  remove(ids: readonly string[]): Promise<void>;
}
