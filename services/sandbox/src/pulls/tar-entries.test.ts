import { execFileSync } from "node:child_process";
import { mkdir, symlink, writeFile } from "node:fs/promises";
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
