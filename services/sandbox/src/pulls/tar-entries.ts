import { createSparseCheck } from "./sparse-files.ts";
import { tarBlockBytes, typeOfHeader } from "./tar-blocks.ts";

/** Extended headers, of pax and of GNU, are about the entry that follows. */
const extensions = "xgLK";

/**
 * Makes what counts the files and folders of a tar archive, in whatever pieces it comes. It counts each block with the
 * checksum of a header, so an archive can't hide entries by what it says of their sizes; one in a file of an archive
 * counts too. Throws what `createSparseCheck` throws.
 */
export function createEntryCounter(): (chunk: Buffer) => number {
  const refuseSparse = createSparseCheck();
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    let count = 0;
    let at = 0;
    for (; at + tarBlockBytes <= bytes.length; at += tarBlockBytes) {
      const type = typeOfHeader(bytes, at);
      if (type !== undefined && !extensions.includes(type)) count += 1;
      refuseSparse(bytes, at, type);
    }
    // A copy, since the chunk is a part of the unpacker's memory.
    rest = Buffer.from(bytes.subarray(at));
    return count;
  };
}
