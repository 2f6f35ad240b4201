// Loaded by a database's threads too: nothing heavy is imported here.
import { hash } from "node:crypto";

/**
 * 16 bytes that stand for these texts together, for an index of texts that may be long. In the SQL of migrations it is
 * `hash_texts(…)`.
 */
export function hashTexts(...texts: readonly unknown[]): Uint8Array {
  return new Uint8Array(hash("sha256", JSON.stringify(texts), "buffer").subarray(0, 16));
}
