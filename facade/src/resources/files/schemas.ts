import { ListEntriesRequestSchema } from "@sandgate/proto/sandbox/v1/files";
import { Type } from "typebox";
import {
  component,
  Moment,
  NextCursor,
  NullableText,
  readOnly,
  WorkspaceHeaders,
} from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";

const pathDescription =
  "A path inside of the sandbox, up to 4,095 bytes. A relative one starts at the image's folder. Links and `..` act as for a program inside.";
const base64Description = "Instead of the path: its bytes in base64, for one that is not UTF-8.";

const Path = Type.Optional(Type.String({ description: pathDescription, examples: ["/tmp/report.txt"] }));
const PathBase64 = Type.Optional(Type.String({ description: base64Description }));
const path = { path: Path, path_base64: PathBase64 };

/** The twelve permission bits. */
const Mode = Type.String({
  pattern: "^[0-7]{3,4}$",
  "x-issue": 'must be three or four octal digits, like "0644"',
  description: "The permission bits in octal digits.",
  examples: ["0644"],
});
const Parents = (description: string) => Type.Boolean({ default: false, description });

const header = (description: string) => Type.Optional(Type.String({ description }));
const IfMatch = header("Only if the file has one of these ETags, or with `*` if it exists; otherwise `conflict`.");

export const RangeHeaders = Type.Object({
  ...WorkspaceHeaders.properties,
  range: header("One range of bytes. Several, or one that is malformed, are ignored, and the whole file is sent."),
  "if-range": header("The range counts only if the file has this ETag; otherwise the whole file is sent."),
});
export const ChangeHeaders = Type.Object({ ...WorkspaceHeaders.properties, "if-match": IfMatch });
export const WriteHeaders = Type.Object({
  ...ChangeHeaders.properties,
  "if-none-match": Type.Optional(
    Type.String({
      pattern: "^\\s*\\*\\s*$",
      "x-issue": "must be *",
      description: "`*`: only if there is no such file; otherwise `conflict`.",
    }),
  ),
});
export const ArchiveHeaders = Type.Object({
  ...WorkspaceHeaders.properties,
  "content-encoding": header("`gzip` for a compressed archive."),
});

export const PathQuery = Type.Object(path);
export const WriteQuery = Type.Object({
  ...path,
  mode: Type.Optional(Mode),
  parents: Parents("Make the folders that are missing. Otherwise one that is missing is `not_found`."),
});
export const DeleteQuery = Type.Object({
  ...path,
  recursive: Type.Boolean({ default: false, description: "Also delete a folder that is not empty." }),
});
export const EntryQuery = Type.Object({
  ...path,
  follow: Type.Boolean({ default: false, description: "Describe what a link leads to rather than the link." }),
});
export const EntriesQuery = Type.Object({
  ...path,
  depth: fieldSchema(ListEntriesRequestSchema, "depth", {
    minimum: 1,
    default: 1,
    description: "Levels below the folder.",
  }),
  limit: fieldSchema(ListEntriesRequestSchema, "limit", { minimum: 1, default: 100 }),
  cursor: Type.Optional(
    fieldSchema(ListEntriesRequestSchema, "cursor", { description: "The `next_cursor` of the page before." }),
  ),
});
export const WatchQuery = Type.Object({
  ...path,
  recursive: Type.Boolean({ default: false, description: "Also what is in folders below, new ones included." }),
});
export const ModeBody = component("FileMode", { mode: Mode }, { mode: "0755" });
export const DirectoryBody = component(
  "NewDirectory",
  {
    ...path,
    mode: Type.Optional(Mode),
    parents: Type.Optional(
      Type.Boolean({ description: "Also make its parents; a folder that is there is no error. False by default." }),
    ),
  },
  { path: "/tmp/results", parents: true },
);
export const MoveBody = component(
  "Move",
  {
    from: Path,
    from_base64: PathBase64,
    to: Path,
    to_base64: PathBase64,
    overwrite: Type.Optional(Type.Boolean({ description: "Replace what is at `to`. False by default." })),
  },
  { from: "/tmp/report.txt", to: "/tmp/results/report.txt" },
);

export const entryTypes = ["file", "directory", "symlink", "other"] as const;
const lossy = "What isn't UTF-8 in it is U+FFFD.";
export const Entry = component("Entry", {
  path: Type.String({ description: lossy }),
  path_base64: Type.Optional(Type.String({ description: "The path's bytes in base64, if it isn't UTF-8." })),
  name: Type.String({ description: lossy }),
  name_base64: Type.Optional(Type.String({ description: "The name's bytes in base64, if it isn't UTF-8." })),
  type: Type.Unsafe<(typeof entryTypes)[number]>({ title: "EntryType", type: "string", enum: [...entryTypes] }),
  size: Type.Integer(),
  mode: Type.String({ description: "The permission bits in octal digits.", examples: ["0644"] }),
  uid: Type.Integer(),
  gid: Type.Integer(),
  user: NullableText,
  group: NullableText,
  modified_at: Moment,
  symlink_target: NullableText,
});
export const EntryList = component("EntryList", { entries: readOnly(Type.Array(Entry)), next_cursor: NextCursor });

/** The answer that is a file's or an archive's bytes. */
export function bytesOf(description: string, mediaType: string) {
  return { description, content: { [mediaType]: { schema: Type.String({ format: "binary" }) } } };
}
