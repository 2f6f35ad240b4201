import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { CreateImageRequestSchema, UpdateImageRequestSchema } from "@sandgate/proto/imageregistry/v1/image_registry";
import { readAllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { parseRegistryUrl } from "@sandgate/registry-client/registry-address";
import { expect, test } from "vitest";
import { checkRegistryHost, fullReferenceOf, readChangedImage, readNewImage } from "./images.ts";

const allowed = readAllowedHosts(["127.0.0.1:5000"]);
const digest = `sha256:${"a".repeat(64)}`;

function read(init: MessageInitShape<typeof CreateImageRequestSchema>) {
  return readNewImage(create(CreateImageRequestSchema, { name: "tool", image: "alpine", ...init }), allowed);
}

function change(init: MessageInitShape<typeof UpdateImageRequestSchema>, from = read({ image: "alpine:3.20" })) {
  return readChangedImage(from, create(UpdateImageRequestSchema, init), allowed);
}

function fieldsOf(refused: () => unknown): string[] {
  try {
    refused();
  } catch (error) {
    if (error instanceof DomainError) return (error.violations ?? []).map(({ field }) => field);
  }
  return [];
}

test("fields that are left out get the defaults of the contract", () => {
  expect(read({})).toEqual({
    name: "tool",
    image: "alpine",
    description: undefined,
    tag: "latest",
    enabled: true,
    memoryMb: 1024,
    readinessPort: undefined,
    ttlSeconds: undefined,
    registryId: undefined,
  });
});

test("the reference is kept as given, and its tag becomes the tag", () => {
  expect(read({ image: "alpine:3.20" })).toMatchObject({ image: "alpine:3.20", tag: "3.20" });
  expect(read({ image: "alpine:3.20", tag: "3.20" })).toMatchObject({ tag: "3.20" });
  expect(read({ image: "alpine", tag: "edge" })).toMatchObject({ tag: "edge" });
  expect(fieldsOf(() => read({ image: "alpine:3.20", tag: "edge" }))).toEqual(["tag"]);
});

test("a digest wins over the tag", () => {
  const image = read({ image: `ghcr.io/a/b:1@${digest}` });
  expect(image.tag).toBe("1");
  expect(fullReferenceOf(image)).toBe(`ghcr.io/a/b@${digest}`);
  expect(fullReferenceOf(read({ tag: "edge" }))).toBe("docker.io/library/alpine:edge");
});

test("a host without a dot stays a host in what a sandbox pulls, and is its credential's", () => {
  const image = read({ image: "MyRegistry/team/tool" });
  expect(fullReferenceOf(image)).toBe("myregistry:443/team/tool:latest");
  checkRegistryHost(image, { host: "myregistry", scheme: undefined });
  checkRegistryHost(image, { host: "myregistry", scheme: "http" });
});

test("an image's name has up to 255 characters with its host, whatever its tag", () => {
  const longest = "a".repeat(255 - "docker.io/library/".length);
  expect(fullReferenceOf(read({ image: longest, tag: "t".repeat(128) }))).toHaveLength(255 + 1 + 128);
  expect(fieldsOf(() => read({ image: `${longest}a` }))).toEqual(["image"]);
});

test("every offending field is named", () => {
  expect(fieldsOf(() => read({ image: "Not An Image", tag: "-", isDefault: true, registryId: "r" }))).toEqual([
    "image",
    "tag",
    "registry_id",
  ]);
});

test("a private host has to be named by an operator", () => {
  expect(read({ image: "127.0.0.1:5000/tool" }).tag).toBe("latest");
  expect(fieldsOf(() => read({ image: "127.0.0.1:5001/tool" }))).toEqual(["image"]);
  expect(fieldsOf(() => read({ image: "localhost/tool" }))).toEqual(["image"]);
});

test("a global default may be on the engine alone, which isn't a registry on this machine", () => {
  expect(fullReferenceOf(read({ image: "localhost/tool:1", isDefault: true }))).toBe("localhost/tool:1");
  expect(fieldsOf(() => read({ image: "localhost:5000/tool", isDefault: true }))).toEqual(["image"]);
  expect(fieldsOf(() => read({ image: "10.0.0.1/tool", isDefault: true }))).toEqual(["image"]);
});

test("an update changes what it names and clears what it lists", () => {
  const full = read({ description: "d", registryId: "r", readinessPort: 80, ttlSeconds: 60, memoryMb: 512 });
  expect(change({ name: "other" }, full)).toEqual({ ...full, name: "other" });
  expect(change({ clear: ["description", "registry_id", "readiness_port", "ttl_seconds"] }, full)).toEqual({
    ...full,
    description: undefined,
    registryId: undefined,
    readinessPort: undefined,
    ttlSeconds: undefined,
  });
});

test("an update keeps reference and tag together", () => {
  expect(change({ image: "alpine:3.21" })).toMatchObject({ image: "alpine:3.21", tag: "3.21" });
  expect(change({ image: "debian" })).toMatchObject({ image: "debian", tag: "3.20" });
  expect(fieldsOf(() => change({ tag: "3.21" }))).toEqual(["tag"]);
  expect(fieldsOf(() => change({ isDefault: true }))).toEqual(["is_default"]);
  expect(change({ isDefault: false })).toEqual(read({ image: "alpine:3.20" }));
});

test("an image and its registry have the same host", () => {
  checkRegistryHost(read({ image: "GHCR.IO:443/a/b" }), { host: "ghcr.io", scheme: "https" });
  checkRegistryHost(read({}), { host: "docker.io", scheme: undefined });
  const other = { host: "ghcr.io", scheme: undefined };
  expect(fieldsOf(() => checkRegistryHost(read({}), other))).toEqual(["registry_id"]);
});

test.each([
  ["10.0.0.5:80", "http://10.0.0.5"],
  ["10.0.0.5:80", "http://10.0.0.5:80"],
  ["10.0.0.5:443", "http://10.0.0.5:443"],
])("an image at %s, which an operator allowed by its port, may use a credential for %s", (host, url) => {
  const image = { name: "tool", image: `${host}/app` };
  const { tag } = readNewImage(create(CreateImageRequestSchema, image), readAllowedHosts([host]));
  const address = parseRegistryUrl(url);
  if (!address) throw new Error("the URL is one");
  checkRegistryHost({ image: image.image, tag }, address);
});
