import { create } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { EntrySchema, EntryType } from "@sandgate/proto/helper/v1/file";
import { expect, test } from "vitest";
import { boundEntries } from "./helper-files.ts";

test("a page of files has no more of them than were asked for", () => {
  const entry = create(EntrySchema, { path: Buffer.from("/a"), type: EntryType.FILE, modifiedAt: timestampNow() });
  expect(boundEntries([entry, entry], 2)).toEqual([entry, entry]);
  expect(() => boundEntries([entry, entry], 1)).toThrow(expect.objectContaining({ reason: "UPSTREAM_ERROR" }));
});
