import { createHash } from "node:crypto";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { expect, test } from "vitest";
import { hasDigest, ManifestRefused, readDiffIds, readManifest } from "./manifest.ts";

const [one, two, three] = ["1", "2", "3"].map((digit) => `sha256:${digit.repeat(64)}`);
const read = (value: unknown, architecture = "x64") =>
  readManifest(Buffer.from(typeof value === "string" ? value : JSON.stringify(value)), architecture);
const image = { schemaVersion: 2, config: { digest: one, size: 2 }, layers: [] };
const index = (...manifests: unknown[]) => ({ schemaVersion: 2, manifests });
const entry = (digest: unknown, platform?: object) => ({ digest, ...(platform && { platform }) });

test("an image's manifest leads to its config and layers", () => {
  const layers = [
    { digest: two, size: 5 },
    { digest: three, size: 0 },
  ];
  expect(read({ ...image, layers, annotations: { "org.example": 'a "b": \\' } })).toEqual({
    kind: "image",
    mediaType: "application/vnd.docker.distribution.manifest.v2+json",
    config: { digest: one, size: 2 },
    layers,
  });
});

test.each([
  [{ mediaType: "application/vnd.oci.image.manifest.v1+json" }, "application/vnd.oci.image.manifest.v1+json"],
  [{ mediaType: "text/html" }, "application/vnd.docker.distribution.manifest.v2+json"],
  [
    { config: { ...image.config, mediaType: "application/vnd.oci.image.config.v1+json" } },
    "application/vnd.oci.image.manifest.v1+json",
  ],
])("an image with %j is served as %s", (fields, mediaType) => {
  expect(read({ ...image, ...fields })).toMatchObject({ mediaType });
});

test("a config says what the layers are when unpacked", () => {
  const config = (rootfs: unknown) => Buffer.from(JSON.stringify({ rootfs }));
  expect(readDiffIds(config({ type: "layers", diff_ids: [one, two] }))).toEqual([one, two]);
  for (const bad of [config({}), config({ diff_ids: ["sha256:short"] }), Buffer.from("null"), Buffer.from("<html>")]) {
    expect(() => readDiffIds(bad)).toThrow(ManifestRefused);
  }
});

test("a config whose layers an engine might read differently is refused", () => {
  const rootfs = (digest = "") => `"rootfs":{"type":"layers","diff_ids":["${digest}"]}`;
  for (const bad of [
    `{${rootfs(one)},${rootfs(two)}}`,
    `{${rootfs(one)},${rootfs(two).replace("rootfs", "RootFS")}}`,
    `{${rootfs(one)},${rootfs(two).replace("rootfs", "rootf\u017f")}}`,
    `{${rootfs(one)},${rootfs(two).replace("rootfs", "rootf\\u0073")}}`,
    `{${rootfs(one).replace("}", `,"Diff_IDs":["${two}"]}`)}}`,
  ]) {
    expect(() => readDiffIds(Buffer.from(bad))).toThrow(ManifestRefused);
  }
  const labels = '"config":{"Labels":{"OS":"linux","Digest":"any","name":"\\"quoted\\": \\\\"}}';
  expect(readDiffIds(Buffer.from(`{${labels},${rootfs(one)}}`))).toEqual([one]);
});

test("a config of a megabyte is read", () => {
  const history = [{ comment: "x".repeat(900_000) }, ...Array.from({ length: 3_000 }, () => ({ empty_layer: true }))];
  expect(readDiffIds(Buffer.from(JSON.stringify({ history, rootfs: { diff_ids: [one] } })))).toEqual([one]);
});

test.each([
  ["keys", '"key":"",', "more than 20000 tokens"],
  ["strings", '"",', "more than 20000 tokens"],
  ["lists", "[],", "more than 20000 tokens"],
  ["lists in lists", "[", "more than 20000 tokens"],
  ["escaped quotes", '\\"', "can't be parsed"],
  ["quotes", '"', "more than 20000 tokens"],
  ["strings without an end", '"\\', "can't be parsed"],
  ["spaces", " ", "can't be parsed"],
])("nothing but %s, as large as can be, is refused in linear time", (_what, unit, message) => {
  const text = (bytes: number) => Buffer.from(unit.repeat(bytes / unit.length));
  // In quadratic time this takes ten minutes.
  expect(() => readDiffIds(text(mebibyte))).toThrow(message);
  expect(() => readManifest(text(256 * 1024))).toThrow(message);
});

test("what is nested too deeply is refused, however little it is", () => {
  const nested = `${"[".repeat(100)}${"]".repeat(100)}`;
  expect(() => readDiffIds(Buffer.from(`{"a":${nested}}`))).toThrow("nested too deeply");
});

test("a list of URLs may be there when it is empty", () => {
  const layers = [{ digest: two, size: 5, urls: [] }];
  expect(read({ ...image, layers })).toMatchObject({ layers: [{ digest: two, size: 5 }] });
});

test.each([
  ["x64", { os: "linux", architecture: "amd64", variant: "v3" }, true],
  ["x64", { os: "linux", architecture: "386" }, true],
  ["x64", { os: "linux", architecture: "X86_64" }, true],
  ["x64", { os: "linux", architecture: "arm64" }, false],
  ["x64", { os: "windows", architecture: "amd64" }, false],
  ["x64", { os: "unknown", architecture: "unknown" }, false],
  ["x64", { architecture: "amd64" }, true],
  ["x64", { os: "", architecture: "" }, true],
  // İ is an i to Go.
  ["x64", { os: "l\u0130nux", architecture: "amd64" }, true],
  ["x64", undefined, true],
  ["arm64", { os: "linux", architecture: "arm64", variant: "v8" }, true],
  ["arm64", { os: "linux", architecture: "arm", variant: "v7" }, true],
  ["arm64", { os: "linux", architecture: "amd64" }, false],
  ["riscv64", { os: "linux", architecture: "amd64" }, true],
])("an engine on %s may choose %j: %s", (architecture, platform, chosen) => {
  expect(read(index(entry(one, platform)), architecture)).toEqual({ kind: "index", candidates: chosen ? [one] : [] });
});

test("every entry that may be chosen is a candidate, once, the best for the architecture first", () => {
  const [amd64, i386] = ["amd64", "386"].map((architecture) => ({ os: "linux", architecture }));
  expect(read(index(entry(one, amd64), entry(two, i386), entry(three, amd64), entry(one, i386)))).toEqual({
    kind: "index",
    candidates: [one, three, two],
  });
  const platform = (architecture: string, variant?: string) => ({
    os: "linux",
    architecture,
    ...(variant && { variant }),
  });
  const amd = read(index(entry(three), entry(two, platform("amd64", "v3")), entry(one, platform("amd64"))));
  expect(amd).toEqual({ kind: "index", candidates: [one, two, three] });
  const arm = read(
    index(entry(three, platform("arm", "v6")), entry(two, platform("arm", "v7")), entry(one, platform("arm64", "v8"))),
    "arm64",
  );
  expect(arm).toEqual({ kind: "index", candidates: [one, two, three] });
});

test.each([
  ["schema 1", { schemaVersion: 1, fsLayers: [], history: [], signatures: [] }],
  ["schema 2 that is schema 1 too", { ...image, fsLayers: [] }],
  ["an image and an index at once", { ...image, manifests: [] }],
  ["an index with layers", { ...index(entry(one)), layers: [] }],
  ["an image without a config", { schemaVersion: 2, layers: [] }],
  ["an image without layers", { schemaVersion: 2, config: image.config }],
  ["a layer without a size", { ...image, layers: [{ digest: two }] }],
  ["a layer of a size that can't be", { ...image, layers: [{ digest: two, size: -1 }] }],
  ["a layer at a URL", { ...image, layers: [{ digest: two, size: 5, urls: ["http://10.0.0.1/"] }] }],
  [
    "a layer at a URL in other letter case",
    { ...image, layers: [{ digest: two, size: 5, URLs: ["http://10.0.0.1/"] }] },
  ],
  ["a config at a URL", { ...image, config: { ...image.config, urls: ["http://10.0.0.1/"] } }],
  ["a config without a digest", { ...image, config: { digest: "sha256:short" } }],
  ["a candidate without a digest", index(entry(undefined))],
  ["a list", []],
  ["nothing", "null"],
  ["what is not JSON", "<html>"],
  ["what is too large", { ...image, annotations: { a: "x".repeat(256 * 1024) } }],
  ["what is nested too deeply", `{"schemaVersion":2,"layers":${"[".repeat(100_000)}${"]".repeat(100_000)}}`],
  ["a name in other letter case", { ...image, Config: { digest: two } }],
  ["a name with a long s", { ...image, config: { digest: one, "dige\u017ft": two } }],
  ["a name that is there twice", `{"schemaVersion":2,"config":{"digest":"${two}"},"config":{"digest":"${one}"}}`],
  ["a name that is there twice, escaped", `{"schemaVersion":2,"config":{"d\\u0069gest":"${two}","digest":"${one}"}}`],
])("%s is refused", (_what, value) => {
  expect(() => read(value)).toThrow(ManifestRefused);
});

test("a digest is of its own algorithm", () => {
  const body = Buffer.from("{}");
  for (const algorithm of ["sha256", "sha384", "sha512"]) {
    const hash = createHash(algorithm).update(body).digest("hex");
    expect(hasDigest(body, `${algorithm}:${hash}`)).toBe(true);
    expect(hasDigest(Buffer.from("[]"), `${algorithm}:${hash}`)).toBe(false);
  }
});
