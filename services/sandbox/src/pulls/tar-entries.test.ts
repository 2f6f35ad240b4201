import { execFileSync } from "node:child_process";
import { mkdir, symlink, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { expect, test } from "vitest";
import { createEntryCounter } from "./tar-entries.ts";

/** With a size that would make a reader of sizes skip what follows. */
function headerOf(name: string, o: { type?: string; bytes?: number; signed?: boolean } = {}): Buffer {
  const header = Buffer.alloc(512);
  header.write(name, 0, 100, "latin1");
  header.write((o.bytes ?? 0).toString(8).padStart(11, "0"), 124);
  header.write(" ".repeat(8), 148);
  header.write(o.type ?? "0", 156);
  const sum = header.reduce((total, byte) => total + (o.signed && byte > 127 ? byte - 256 : byte), 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return header;
}

test.each(["pax", "gnu", "v7"])("counts the entries of an archive in the format %s", async (format) => {
  await using temp = await createTempFolder();
  const folder = temp.path;
  await mkdir(join(folder, "tree", "deep", "x".repeat(30)), { recursive: true });
  await symlink("deep", join(folder, "tree", "link"));
  for (let index = 0; index < 20; index++)
    await writeFile(join(folder, "tree", "deep", `${index}`), "x".repeat(index * 100));
  const archive = execFileSync("tar", ["--format", format, "-C", folder, "-c", "tree"]);
  for (const size of [1, 511, 512, 10_000, archive.length]) {
    const count = createEntryCounter();
    let entries = 0;
    for (let at = 0; at < archive.length; at += size) entries += count(archive.subarray(at, at + size));
    expect(entries).toBe(24);
  }
});

test("counts entries that sizes would hide, whatever way their checksum is made, and no extended headers", () => {
  const archive = Buffer.concat([
    headerOf("hider", { bytes: 1_000_000 }),
    ...Array.from({ length: 50 }, (_, index) => headerOf(`empty-${index}`)),
    headerOf("\u00e9\u00e9", { signed: true }),
    ...["x", "g", "L", "K"].map((type) => headerOf("of the next", { type })),
    Buffer.alloc(512, "0"),
    Buffer.alloc(1024),
  ]);
  expect(createEntryCounter()(archive)).toBe(52);
});

/** A pax header with these records. */
function recordsOf(records: Record<string, string>, type = "x"): Buffer {
  const text = Object.entries(records)
    .map(([key, value]) => `${key}=${value}\n`)
    .map((record) => `${record.length + 3} ${record}`)
    .join("");
  const content = Buffer.alloc(Math.ceil(text.length / 512) * 512);
  content.write(text, "latin1");
  return Buffer.concat([headerOf("records", { type, bytes: text.length }), content]);
}

const refusal = (what: string) => expect.objectContaining({ reason: "PROVISIONING_FAILED", message: what });
const aSparseFile = refusal("The image's layers have a sparse file, which is not allowed.");

test.each([["gnu"], ["pax", "--sparse-version=0.0"], ["pax", "--sparse-version=0.1"], ["pax", "--sparse-version=1.0"]])(
  "refuses an archive with a sparse file (%s %s), but not one within a file",
  async (format, ...version) => {
    await using temp = await createTempFolder();
    const folder = temp.path;
    await writeFile(join(folder, "holes"), "");
    await truncate(join(folder, "holes"), 2 ** 30);
    await writeFile(join(folder, "after"), "");
    const sparse = join(folder, "sparse.tar");
    execFileSync("tar", ["-S", "--format", format, ...version, "-C", folder, "-cf", sparse, "holes", "after"]);
    const archive = execFileSync("tar", ["-c", "-C", folder, "--transform=s/^/with-sparse-/", "sparse.tar"]);
    expect(archive.length).toBeLessThan(100_000);
    expect(createEntryCounter()(archive)).toBeGreaterThan(1);
    const itself = archive.subarray(512);
    for (const size of [1, 512, itself.length]) {
      const count = createEntryCounter();
      expect(() => {
        for (let at = 0; at < itself.length; at += size) count(itself.subarray(at, at + size));
      }).toThrow(aSparseFile);
    }
  },
);

const sparseFile = headerOf("sparse", { type: "S" });

test.each([
  ["an entry without content, whatever its size", [headerOf("folder/", { type: "5", bytes: 10_000 })]],
  ["a file, by the size of its records", [recordsOf({ size: "0" }), headerOf("file", { bytes: 10_000 })]],
  [
    "records that are a later entry's no more",
    [recordsOf({ size: "9999" }), recordsOf({ a: "b" }, "g"), headerOf("f")],
  ],
  ["records that others have replaced", [recordsOf({ size: "9999" }), recordsOf({ mtime: "1" }), headerOf("f")]],
  ["the content of a file", [headerOf("file", { bytes: 512 }), Buffer.alloc(512)]],
  ["the records of all entries", [recordsOf({ size: "9999" }, "g"), headerOf("file")]],
])("finds a sparse file after %s", (_what, before) => {
  expect(() => createEntryCounter()(Buffer.concat([...before, sparseFile]))).toThrow(aSparseFile);
});

test("an archive is refused that engines could read otherwise", () => {
  const unclear = refusal("The image's layers have an entry that may be a file or a folder, which is not allowed.");
  const old = { type: "\0", bytes: 512 };
  expect(createEntryCounter()(Buffer.concat([headerOf("old", old), sparseFile]))).toBe(2);
  expect(() => createEntryCounter()(headerOf("old/", old))).toThrow(unclear);
  const sized = Buffer.concat([recordsOf({ size: "9999" }), headerOf("old/", { type: "\0" })]);
  expect(() => createEntryCounter()(sized)).toThrow(unclear);
  expect(() => createEntryCounter()(Buffer.concat([recordsOf({ path: "old/" }), headerOf("old", old)]))).toThrow(
    unclear,
  );
  const long = headerOf("records", { type: "x", bytes: 2 ** 20 + 1 });
  expect(() => createEntryCounter()(long)).toThrow("an extended header of more than 1048576 bytes");
});
