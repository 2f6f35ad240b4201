/** A tar archive consists of such blocks, and each entry begins with one (POSIX.1-2001, pax). */
export const tarBlockBytes = 512;

const checksum = { from: 148, to: 156 };
const space = 0x20;

/** The type of the entry that begins with this block; undefined where the checksum is not that of a header. */
export function typeOfHeader(bytes: Buffer, start: number): string | undefined {
  // Undefined at once for most blocks of files.
  const stated = readOctal(bytes, start + checksum.from, start + checksum.to);
  if (stated === undefined) return undefined;
  let unsigned = 0;
  let signed = 0;
  for (let i = 0; i < tarBlockBytes; i++) {
    const byte = i >= checksum.from && i < checksum.to ? space : (bytes[start + i] ?? 0);
    unsigned += byte;
    // Some programs have summed so, and engines take it.
    signed += byte < 128 ? byte : byte - 256;
  }
  return stated === unsigned || stated === signed ? String.fromCharCode(bytes[start + 156] ?? 0) : undefined;
}

/** A number of a header, in octal digits; undefined where there is none. */
export function readOctal(bytes: Buffer, from: number, to: number): number | undefined {
  let at = from;
  while (at < to && (bytes[at] === space || bytes[at] === 0)) at += 1;
  let value: number | undefined;
  for (; at < to && ((bytes[at] ?? 0) & 0xf8) === 0x30; at++) value = (value ?? 0) * 8 + ((bytes[at] ?? 0) & 7);
  return value;
}
