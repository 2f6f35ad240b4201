import { posix } from "node:path";
import { type Entry, EntryType } from "@sandgate/proto/helper/v1/file";
import { readBytes } from "../../resources/files/paths.ts";
import { FileType } from "../gen/filesystem_pb.ts";

const types: Partial<Record<EntryType, FileType>> = {
  [EntryType.FILE]: FileType.FILE,
  [EntryType.DIRECTORY]: FileType.DIRECTORY,
};
/** As Go writes the kind of a file, in front of its permissions. */
const kinds: Partial<Record<EntryType, string>> = {
  [EntryType.FILE]: "-",
  [EntryType.DIRECTORY]: "d",
  [EntryType.SYMLINK]: "L",
};

/** An entry as envd has it. Of a link, its type is the one of `target`, unknown where it leads nowhere. */
export function toEntryInfo(entry: Entry, target?: Entry) {
  const path = readBytes(entry.path).text;
  const isLink = entry.type === EntryType.SYMLINK;
  return {
    name: posix.basename(path) || "/",
    type: types[isLink ? (target?.type ?? EntryType.UNSPECIFIED) : entry.type] ?? FileType.UNSPECIFIED,
    path,
    size: entry.size,
    mode: entry.mode & 0o777,
    permissions: `${kinds[entry.type] ?? "?"}${permissionsOf(entry.mode)}`,
    owner: entry.user || String(entry.uid),
    group: entry.group || String(entry.gid),
    ...(entry.modifiedAt && { modifiedTime: entry.modifiedAt }),
    ...(isLink && { symlinkTarget: posix.resolve(posix.dirname(path), readBytes(entry.symlinkTarget).text) }),
  };
}

function permissionsOf(mode: number): string {
  return [...(mode & 0o777).toString(2).padStart(9, "0")]
    .map((bit, index) => (bit === "1" ? "rwx".charAt(index % 3) : "-"))
    .join("");
}
