import { createHash } from "node:crypto";
import { invalid } from "@sandgate/kit/base/domain-error";

const markBytes = 8;

/** The opaque text with which a client goes on with a list of this folder, after the entry at `position`. */
export function encodeFileCursor(path: Uint8Array, position: Uint8Array): string {
  return position.length === 0 ? "" : Buffer.concat([markOf(path, position), position]).toString("base64url");
}

/** Throws VALIDATION_ERROR for a text that is no cursor of a list of this folder. */
export function decodeFileCursor(path: Uint8Array, text: string): Uint8Array {
  const bytes = Buffer.from(text, "base64url");
  const position = bytes.subarray(markBytes);
  if (encodeFileCursor(path, position) !== text) throw invalid("query.cursor", "is not a cursor of this list");
  return position;
}

function markOf(path: Uint8Array, position: Uint8Array): Buffer {
  // The length keeps the two apart.
  return createHash("sha256").update(`${path.length} `).update(path).update(position).digest().subarray(0, markBytes);
}
