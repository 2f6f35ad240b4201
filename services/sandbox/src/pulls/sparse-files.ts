import { DomainError } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { readOctal, tarBlockBytes } from "./tar-blocks.ts";

/** Engines read no longer extended header. */
const maxRecordsBytes = mebibyte;
/** The types of links, devices, folders and pipes: no content follows, whatever size they state. */
const withoutContent = "123456";

/**
 * Makes what looks for sparse files in the blocks of an archive, given in turn, each with its type if it could be a
 * header. A few bytes of an archive say how large such a file is, and engines write all of it to the disk. The OCI image
 * specification advises against them.
 *
 * The content of files, which may be archives, is left out. So sizes are read as engines do it, with Go's archive/tar,
 * and what could be read in two ways is refused. Throws PROVISIONING_FAILED.
 */
export function createSparseCheck(): (bytes: Buffer, start: number, type: string | undefined) => void {
  /** Blocks of an entry's content that are still to come. */
  let contentBlocks = 0;
  /** The extended header whose records are coming. */
  let extended: { type: string; text: string; missingBytes: number } | undefined;
  /** What the extended headers before an entry say of it. */
  let next: { size?: number } | undefined;

  function addRecords(header: NonNullable<typeof extended>, text: string): void {
    header.text += text;
    header.missingBytes -= text.length;
    if (header.missingBytes > 0) {
      extended = header;
      return;
    }
    extended = undefined;
    const records = new Map(recordsOf(header.text));
    for (const key of records.keys()) if (key.startsWith("GNU.sparse.")) throw refused("a sparse file");
    const size = records.get("size");
    // A global one is an entry of its own.
    if (header.type === "g") next = undefined;
    else next = size ? { size: Number.parseInt(size, 10) } : {};
  }

  function beginEntry(bytes: Buffer, start: number, type: string): void {
    const size = sizeOf(bytes, start);
    if (type === "S") throw refused("a sparse file");
    if (type === "x" || type === "g") {
      if (size > maxRecordsBytes) throw refused(`an extended header of more than ${maxRecordsBytes} bytes`);
      addRecords({ type, text: "", missingBytes: size }, "");
    } else if (type === "L" || type === "K") {
      contentBlocks = Math.ceil(size / tarBlockBytes);
      next ??= {};
    } else {
      const contentBytes = next?.size ?? size;
      // Without a type, it is a folder if its name, from wherever, ends with a slash.
      if (type === "\0" && contentBytes > 0 && (next || !isFileName(bytes, start))) {
        throw refused("an entry that may be a file or a folder");
      }
      if (!withoutContent.includes(type)) contentBlocks = Math.ceil(contentBytes / tarBlockBytes);
      next = undefined;
    }
  }

  return (bytes, start, type) => {
    if (contentBlocks > 0) {
      contentBlocks -= 1;
    } else if (extended) {
      const end = start + Math.min(tarBlockBytes, extended.missingBytes);
      addRecords(extended, bytes.toString("latin1", start, end));
    } else if (type !== undefined) {
      beginEntry(bytes, start, type);
    }
  };
}

/** The records of a pax header, up to one that no engine reads. */
function* recordsOf(text: string): Generator<[key: string, value: string]> {
  for (let at = 0; at < text.length; ) {
    const space = text.indexOf(" ", at);
    const end = at + Number.parseInt(text.slice(at, Math.max(at, space)), 10);
    if (!(end > space && end <= text.length)) return;
    const [key = "", ...value] = text.slice(space + 1, end - 1).split("=");
    yield [key, value.join("=")];
    at = end;
  }
}

/** What the header states: octal digits, or a binary number of GNU. */
function sizeOf(bytes: Buffer, start: number): number {
  const [from, to] = [start + 124, start + 136];
  const isBinary = ((bytes[from] ?? 0) & 0x80) !== 0;
  if (!isBinary) return readOctal(bytes, from, to) ?? 0;
  return bytes.readUIntBE(from + 1, 5) * 2 ** 48 + bytes.readUIntBE(from + 6, 6);
}

/** By the name in the header. */
function isFileName(bytes: Buffer, start: number): boolean {
  const [name = ""] = bytes.toString("latin1", start, start + 100).split("\0");
  return name !== "" && !name.endsWith("/");
}

function refused(what: string): DomainError {
  return new DomainError("PROVISIONING_FAILED", `The image's layers have ${what}, which is not allowed.`);
}
