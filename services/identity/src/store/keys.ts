import type { StoredKey } from "../domain/signing-keys.ts";

/** The keys of session and refresh tokens. */
export interface Keys {
  /** Adds a key unless one of its use was created after `unlessAfter`; false then. */
  add(key: StoredKey, unlessAfter: Date): Promise<boolean>;
  /** Newest first. */
  list(): Promise<StoredKey[]>;
  /** Replaces all keys with these and ends every session, as of `endedAt`. */
  replaceAll(keys: readonly StoredKey[], endedAt: Date): Promise<void>;
  /** Ids that are unknown are ignored. */
  remove(ids: readonly string[]): Promise<void>;
}
