import { maxLineBytes } from "./rows.ts";

/** The end of a line that was cut to `maxLineBytes`, in which it counts. */
export const cutMark = " …[cut]";

/** Invalid UTF-8 becomes U+FFFD. A line that is too long is cut between two characters and ends with the mark. */
export function decodeLine(segments: readonly Buffer[], cut: boolean): string {
  const [only] = segments;
  const text = (segments.length === 1 && only ? only : Buffer.concat(segments)).toString("utf8");
  // Replacing invalid bytes may have made it too long as well.
  const encoded = cut || text.length > maxLineBytes / 3 ? Buffer.from(text) : undefined;
  if (!encoded || (!cut && encoded.length <= maxLineBytes)) return text;
  let end = Math.min(encoded.length, maxLineBytes - Buffer.byteLength(cutMark));
  while (end > 0 && ((encoded[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return encoded.toString("utf8", 0, end) + cutMark;
}
