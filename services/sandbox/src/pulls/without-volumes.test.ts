import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { type ImageDocuments, volumesOf, withoutVolumes } from "./without-volumes.ts";

const digestOf = (content: Uint8Array) => `sha256:${createHash("sha256").update(content).digest("hex")}`;
const read = ({ content }: { content: Uint8Array }) => JSON.parse(Buffer.from(content).toString());
const layers = [{ mediaType: "application/vnd.oci.image.layer.v1.tar+gzip", digest: "sha256:aa", size: 10 }];
const mediaType = "application/vnd.oci.image.config.v1+json";

function imageOf(config: string): ImageDocuments {
  const content = Buffer.from(config);
  const data = content.toString("base64");
  const described = { mediaType, digest: digestOf(content), size: content.length, data };
  const manifest = Buffer.from(JSON.stringify({ schemaVersion: 2, config: described, layers }));
  return {
    manifest: { digest: digestOf(manifest), content: manifest },
    config: { digest: digestOf(content), content },
  };
}

test("an image's volumes go, however they are spelled, a label has their paths, and all else stays", () => {
  for (const name of ["Volumes", "volumes", "VOLUME\u017f"]) {
    for (const key of ["config", "CONFIG"]) {
      const image = imageOf(
        `{"os":"linux","rootfs":{"diff_ids":["a"]},"${key}":{"Cmd":["run"],"Labels":{"a":"b"},"${name}":{"/data":{}}}}`,
      );
      const { config, manifest } = withoutVolumes(image);
      expect(read(config)).toEqual({
        os: "linux",
        rootfs: { diff_ids: ["a"] },
        [key]: { Cmd: ["run"], Labels: { a: "b", "sandgate.io/volumes": '["/data"]' } },
      });
      expect(config.digest).toBe(digestOf(config.content));
      expect(read(manifest)).toEqual({
        schemaVersion: 2,
        config: { mediaType, digest: config.digest, size: config.content.length },
        layers,
      });
      expect(manifest.digest).toBe(digestOf(manifest.content));
    }
  }
});

test.each([
  ["without volumes", '{"config":{"Cmd":["run"],"Labels":{"volumes":"2"}},"rootfs":{}}'],
  ["with null for volumes", '{"config":{"Cmd":["run"],"Volumes":null},"rootfs":{}}'],
  ["without settings", '{"rootfs":{"volumes":[]},"config":null}'],
  ["that is no object", "[1]"],
])("an image's config %s is served as it came", (_how, config) => {
  const image = imageOf(config);
  expect(withoutVolumes(image)).toBe(image);
});

test("an image's volumes are those of its config, however they are spelled", () => {
  const config = { CONFIG: { volumes: { "/data": {}, "/cache": {} }, Cmd: ["sh", "-c", "x".repeat(10_000)] } };
  expect(volumesOf(Buffer.from(JSON.stringify(config)))).toEqual(["/data", "/cache"]);
  for (const text of ["{}", '{"config":null}', '{"config":{"Volumes":null,"Entrypoint":null,"Cmd":null}}']) {
    expect(volumesOf(Buffer.from(text))).toEqual([]);
  }
});

test("a config that is there twice, once as nothing, has its volumes dropped all the same", () => {
  const { config } = withoutVolumes(imageOf('{"config":{"Volumes":{"/data":{}}},"CONFIG":null}'));
  expect(read(config)).toEqual({ config: { Labels: { "sandgate.io/volumes": '["/data"]' } }, CONFIG: null });
});

test.each([
  ["has many volumes", { Volumes: Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`/${i}`, {}])) }],
  ["has a volume with a long path", { Volumes: { [`/${"x".repeat(4_095)}`]: {} } }],
  ["has a program with a long path", { entryPoint: null, CMD: ["x".repeat(4_096)] }],
  ["has a working directory with a long path", { WorkingDir: "x".repeat(4_096) }],
  ["has much to say of its containers", { Labels: { a: "x".repeat(65_536) } }],
])("an image that %s is given to no runtime", (_what, config) => {
  const text = JSON.stringify({ config });
  expect(() => volumesOf(Buffer.from(text))).toThrow(/the image (has|declares) /);
  expect(() => withoutVolumes(imageOf(text))).toThrow(/the image (has|declares) /);
  const withVolume = JSON.stringify({ config: { Volumes: { "/data": {} }, ...config } });
  expect(() => withoutVolumes(imageOf(withVolume))).toThrow(/the image (has|declares) /);
});

test("a config is too large with all that engines read as parts of it", () => {
  const labels = { Labels: { a: "x".repeat(40_000) } };
  expect(volumesOf(Buffer.from(JSON.stringify({ config: labels })))).toEqual([]);
  const text = JSON.stringify({ config: labels, Config: labels });
  expect(() => volumesOf(Buffer.from(text))).toThrow("of more than 65536 bytes");
});
