import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { createFileRegistry, type DescExtension, type DescField, type DescFile, fromBinary } from "@bufbuild/protobuf";
import { type FileDescriptorSet, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { file_buf_validate_validate as published } from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";
import { expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");

function compile(): FileDescriptorSet {
  const buf = join(root, "node_modules/.bin/buf");
  const args = ["build", "--path", "proto/buf", "--as-file-descriptor-set", "--output", "-#format=binpb"];
  return fromBinary(FileDescriptorSetSchema, execFileSync(buf, args, { cwd: root }));
}

/** Every field and extension of a file by its full name, with all that decides its encoding. */
function encodings(file: DescFile): Map<string, object> {
  const described = (field: DescField | DescExtension) => ({
    number: field.number,
    kind: field.fieldKind,
    of: field.message?.typeName ?? field.enum?.typeName ?? field.scalar,
    list: field.fieldKind === "list" ? field.listKind : undefined,
  });
  return new Map([
    ...file.extensions.map((one) => [one.typeName, { ...described(one), extendee: one.extendee.typeName }] as const),
    ...file.messages.flatMap((message) =>
      message.fields.map((field) => [`${message.typeName}.${field.name}`, described(field)] as const),
    ),
  ]);
}

test("the options of buf.validate are declared as protovalidate publishes them", () => {
  const declared = createFileRegistry(compile()).getFile("buf/validate/validate.proto");
  const ours = declared ? encodings(declared) : new Map();
  const theirs = encodings(published);
  expect(ours.size).toBeGreaterThan(20);
  for (const [name, encoding] of ours) expect(encoding, name).toEqual(theirs.get(name));
});
