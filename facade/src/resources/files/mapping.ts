import { type Entry, EntryType } from "@sandgate/proto/helper/v1/file";
import type { Static } from "typebox";
import { present } from "../../pipeline/messages/contract.ts";
import { toIsoMillis } from "../../pipeline/messages/times.ts";
import { readBytes } from "./paths.ts";
import type * as schemas from "./schemas.ts";

const slash = 0x2f;
/** Of the name that a download is saved under. */
const maxNameLength = 255;

const types: Readonly<Record<number, (typeof schemas.entryTypes)[number]>> = {
  [EntryType.FILE]: "file",
  [EntryType.DIRECTORY]: "directory",
  [EntryType.SYMLINK]: "symlink",
};

export function toEntry(entry: Entry): Static<typeof schemas.Entry> {
  const path = readBytes(entry.path);
  const name = readBytes(nameOf(entry.path));
  return {
    path: path.text,
    ...(path.base64 !== undefined && { path_base64: path.base64 }),
    name: name.text,
    ...(name.base64 !== undefined && { name_base64: name.base64 }),
    type: types[entry.type] ?? "other",
    size: Number(entry.size),
    mode: entry.mode.toString(8).padStart(4, "0"),
    uid: entry.uid,
    gid: entry.gid,
    user: entry.user || null,
    group: entry.group || null,
    modified_at: toIsoMillis(present(entry.modifiedAt)),
    symlink_target: entry.type === EntryType.SYMLINK ? readBytes(entry.symlinkTarget).text : null,
  };
}

/** The last name of a path. */
function nameOf(path: Uint8Array): Uint8Array {
  let end = path.length;
  while (end > 1 && path[end - 1] === slash) end--;
  const begin = path.lastIndexOf(slash, end - 1) + 1;
  return begin >= end ? path.subarray(0, end) : path.subarray(begin, end);
}

export function fromMode(mode: string | undefined): { mode?: number } {
  return mode === undefined ? {} : { mode: Number.parseInt(mode, 8) };
}

export function toEtag({ etag }: Entry): Record<string, string> {
  return etag === "" ? {} : { etag: `"${etag}"` };
}

/** Headers with which browsers save what is sent, under its own name and an ending. */
export function toDownloadHeaders(path: Uint8Array, ending = ""): Record<string, string> {
  const name = `${readBytes(nameOf(path)).text.slice(0, maxNameLength).toWellFormed()}${ending}`;
  const plain = name.replaceAll(/[^A-Za-z0-9 ._+-]/g, "_");
  const encoded = encodeURIComponent(name).replaceAll(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return {
    // RFC 6266, 4.1.
    "content-disposition": `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`,
    "x-content-type-options": "nosniff",
  };
}
