import { execFile } from "node:child_process";
import { chmodSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { openKeyring } from "./sealing.ts";

let folder: string;
let file: string;
test.beforeEach(async ({ folder: own }) => {
  folder = own;
  file = join(folder, "deep", "keys.json");
});

const place = { service: "image-registry", table: "registries", record: "r1", workspace: "w1" };
const plain = Buffer.from("the password");

test("what is sealed opens, also after a restart, and never looks the same twice", async () => {
  const first = await openKeyring({ file, create: true });
  const sealed = first.seal(plain, place);
  expect(Buffer.from(sealed).includes(plain)).toBe(false);
  expect(Buffer.from(first.seal(plain, place)).equals(Buffer.from(sealed))).toBe(false);
  const second = await openKeyring({ file, create: true });
  expect(Buffer.from(second.open(sealed, place))).toEqual(plain);
  expect(Buffer.from(second.open(first.seal(new Uint8Array(), place), place))).toEqual(Buffer.alloc(0));
});

test("the ring is its owner's alone, and starters at once agree on one", async () => {
  const rings = await Promise.all(Array.from({ length: 8 }, () => openKeyring({ file, create: true })));
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const sealed = rings[0]?.seal(plain, place) ?? new Uint8Array();
  for (const ring of rings) expect(Buffer.from(ring.open(sealed, place))).toEqual(plain);
  chmodSync(file, 0o644);
  await openKeyring({ file, create: true });
  expect(statSync(file).mode & 0o777).toBe(0o600);
});

test("a key ring is not created where one must be given", async () => {
  await expect(openKeyring({ file, create: false })).rejects.toThrow(`The key ring ${file} is missing`);
});

test.each([
  { ...place, service: "sandbox" },
  { ...place, table: "images" },
  { ...place, record: "r2" },
  { ...place, workspace: "w2" },
  { service: place.service, table: place.table, record: place.record },
])("a value moved to %o doesn't open", async (elsewhere) => {
  const ring = await openKeyring({ file, create: true });
  const sealed = ring.seal(plain, place);
  expect(() => ring.open(sealed, elsewhere)).toThrow();
});

test("a value with any byte changed, cut or grown doesn't open", async () => {
  const ring = await openKeyring({ file, create: true });
  const sealed = Buffer.from(ring.seal(plain, place));
  for (let i = 0; i < sealed.length; i++) {
    const changed = Buffer.from(sealed);
    changed[i] = (changed[i] ?? 0) ^ 1;
    expect(() => ring.open(changed, place)).toThrow();
    expect(() => ring.open(sealed.subarray(0, i), place)).toThrow();
  }
  expect(() => ring.open(Buffer.concat([sealed, Buffer.from([0])]), place)).toThrow();
});

test("keys rotate: the new one seals, the old one still opens until it is taken out", async () => {
  const old = (await openKeyring({ file, create: true })).seal(plain, place);
  const ring = JSON.parse(readFileSync(file, "utf8"));
  const retired = ring.current;
  ring.keys.next = Buffer.alloc(32, 7).toString("base64");
  ring.current = "next";
  writeFileSync(file, JSON.stringify(ring));
  const rotated = await openKeyring({ file, create: false });
  expect(Buffer.from(rotated.open(old, place))).toEqual(plain);
  const fresh = rotated.seal(plain, place);
  expect(Buffer.from(fresh).includes("next")).toBe(true);

  delete ring.keys[retired];
  writeFileSync(file, JSON.stringify(ring));
  const cut = await openKeyring({ file, create: false });
  expect(Buffer.from(cut.open(fresh, place))).toEqual(plain);
  expect(() => cut.open(old, place)).toThrow(
    `a record of image-registry (registries) is sealed with the key "${retired}", which the key ring ${file} doesn't hold`,
  );
});

test("the operators' program adds a key, makes it the one that seals, and takes the old one out", async () => {
  const program = join(import.meta.dirname, "key-ring.ts");
  const run = async (...args: string[]) =>
    (await promisify(execFile)(process.execPath, [program, ...args])).stdout.trim();
  const { currentKeyId: first } = await openKeyring({ file, create: true });
  const added = await run("add", file);
  expect((await openKeyring({ file, create: false })).currentKeyId).toBe(first);
  await expect(run("drop", file, first)).rejects.toThrow("use another key first");
  await run("use", file, added);
  const ring = await openKeyring({ file, create: false });
  expect([ring.currentKeyId, ring.hasKey(first)]).toEqual([added, true]);
  await run("drop", file, first);
  const dropped = await openKeyring({ file, create: false });
  expect([dropped.currentKeyId, dropped.hasKey(first)]).toEqual([added, false]);
  expect(Buffer.from(dropped.open(ring.seal(plain, place), place))).toEqual(plain);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  await expect(run("drop", file, first)).rejects.toThrow(`There is no key "${first}"`);
  await expect(run("add")).rejects.toThrow("use <file> <id>");
});

test("the error for a value of another ring names the missing key, also when both keys have one name", async () => {
  const theirs = await openKeyring({ file: join(folder, "theirs.json"), create: true });
  const sealed = theirs.seal(plain, place);
  const missing: string = JSON.parse(readFileSync(join(folder, "theirs.json"), "utf8")).current;
  const ours = await openKeyring({ file, create: true });
  expect(() => ours.open(sealed, place)).toThrow(`sealed with the key "${missing}"`);

  const ring = { current: missing, keys: { [missing]: Buffer.alloc(32, 7).toString("base64") } };
  writeFileSync(file, JSON.stringify(ring));
  const namesake = await openKeyring({ file, create: false });
  expect(() => namesake.open(sealed, place)).toThrow(`doesn't open with the key "${missing}" of the key ring ${file}`);
});

test.each([
  "",
  "[]",
  "{}",
  '{"current":"a","keys":{}}',
  '{"current":"a","keys":{"a":"c2hvcnQ="}}',
  '{"current":1,"keys":{"a":2}}',
])("the ring %s is refused", async (content) => {
  file = join(folder, "ring.json");
  writeFileSync(file, content);
  await expect(openKeyring({ file, create: true })).rejects.toThrow("The key ring");
});
