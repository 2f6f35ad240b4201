/** A tar archive consists of such blocks, and each entry begins with one (POSIX.1-2001, pax). */
export const tarBlockBytes = 512;

const checksum = { from: 148, to: 156 };
const space = 0x20;
/** Extended headers, of pax and of GNU, are about the entry that follows. */
const extensions = new Set([..."xgLK"].map((type) => type.charCodeAt(0)));

/**
 * Makes what counts the files and folders of a tar archive, in whatever pieces it comes. It counts each block with the
 * checksum of a header, so an archive can't hide entries by what it says of their sizes; one in a file of an archive
 * counts too.
 */
export function createEntryCounter(): (chunk: Buffer) => number {
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let count = 0;
    let at = 0;
    for (; at + tarBlockBytes <= bytes.length; at += tarBlockBytes) if (isEntry(bytes, at)) count += 1;
    // A copy, since the chunk is a part of the unpacker's memory.
    rest = Buffer.from(bytes.subarray(at));
    return count;
  };
}

function isEntry(bytes: Buffer, start: number): boolean {
  const stated = readChecksum(bytes, start);
  if (stated === undefined || extensions.has(bytes[start + 156] ?? 0)) return false;
  let unsigned = 0;
  let signed = 0;
  for (let i = 0; i < tarBlockBytes; i++) {
    const byte = i >= checksum.from && i < checksum.to ? space : (bytes[start + i] ?? 0);
    unsigned += byte;
    // Some programs have summed so, and engines take it.
    signed += byte < 128 ? byte : byte - 256;
  }
  return stated === unsigned || stated === signed;
}

/** Undefined, at once for most blocks of files: there is no octal number. */
function readChecksum(bytes: Buffer, start: number): number | undefined {
  let at = start + checksum.from;
  const end = start + checksum.to;
  while (at < end && (bytes[at] === space || bytes[at] === 0)) at += 1;
  let value: number | undefined;
  for (; at < end && ((bytes[at] ?? 0) & 0xf8) === 0x30; at++) value = (value ?? 0) * 8 + ((bytes[at] ?? 0) & 7);
  return value;
}
