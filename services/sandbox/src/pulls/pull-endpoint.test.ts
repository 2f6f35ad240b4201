import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createPullEndpoint, type OpenPull } from "./pull-endpoint.ts";

const digestOf = (digit: string) => `sha256:${digit.repeat(64)}`;
const [manifest, config, here, missing, foreign] = ["1", "2", "3", "4", "5"].map(digestOf);
const endpoint = createPullEndpoint(0);
let folder: string;
let address: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "sandgate-pull-endpoint-"));
  await writeFile(join(folder, "layer"), "layer");
  address = await endpoint.listen();
});
afterAll(async () => {
  await endpoint.close();
  await rm(folder, { recursive: true });
});

function open(name = "ghcr.io/team/tool"): OpenPull {
  return endpoint.open({
    name,
    manifest: {
      digest: manifest ?? "",
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      content: Buffer.from("{}"),
    },
    config: { digest: config ?? "", content: Buffer.from("config") },
    layers: new Map([
      [here ?? "", { path: join(folder, "layer"), sizeBytes: 5 }],
      [missing ?? "", undefined],
    ]),
  });
}

function ask(path: string, pull?: { username: string; password: string }, method = "GET"): Promise<Response> {
  const authorization = pull && `Basic ${Buffer.from(`${pull.username}:${pull.password}`).toString("base64")}`;
  return fetch(`http://${address}/v2/${path}`, { method, headers: { ...(authorization && { authorization }) } });
}

test("a pull is given its image and nothing else", async () => {
  const pull = open();
  expect((await ask("", pull)).status).toBe(200);
  const repository = "ghcr.io/team/tool";
  const named = await ask(`${repository}/manifests/${manifest}`, pull);
  expect([named.status, named.headers.get("content-type"), await named.text()]).toEqual([
    200,
    "application/vnd.oci.image.manifest.v1+json",
    "{}",
  ]);
  expect(named.headers.get("docker-content-digest")).toBe(manifest);
  expect(await (await ask(`${repository}/blobs/${config}`, pull)).text()).toBe("config");
  expect(await (await ask(`${repository}/blobs/${here}`, pull)).text()).toBe("layer");
  const head = await ask(`${repository}/blobs/${here}`, pull, "HEAD");
  expect([head.status, head.headers.get("content-length"), await head.text()]).toEqual([200, "5", ""]);
  for (const path of [
    `${repository}/manifests/latest`,
    `${repository}/manifests/${foreign}`,
    `${repository}/manifests/${config}`,
    `${repository}/blobs/${foreign}`,
    `${repository}/blobs/${manifest}`,
    `${repository}/tags/list`,
    `ghcr.io/team/other/blobs/${here}`,
    `ghcr.io/team/tool/../other/blobs/${here}`,
    "_catalog",
  ]) {
    expect([path, (await ask(path, pull)).status]).toEqual([path, 404]);
  }
  for (const method of ["POST", "PUT", "PATCH", "DELETE"]) {
    expect((await ask(`${repository}/blobs/${here}`, pull, method)).status).toBe(405);
  }
});

test("nobody else gets anything", async () => {
  const [pull, other] = [open(), open("ghcr.io/team/other")];
  const path = `ghcr.io/team/tool/blobs/${here}`;
  const wrong = { username: pull.username, password: other.password };
  for (const credential of [undefined, wrong, { username: "", password: "" }, { ...pull, password: "" }]) {
    for (const each of [path, ""]) {
      const refused = await ask(each, credential);
      expect([refused.status, refused.headers.get("www-authenticate")]).toEqual([401, 'Basic realm="sandgate"']);
    }
  }
  expect((await ask(path, other)).status).toBe(404);
  expect((await ask(path, pull)).status).toBe(200);
  pull.end();
  expect((await ask(path, pull)).status).toBe(401);
});

test("a layer that is not there is denied and remembered", async () => {
  const pull = open();
  expect(pull.missing()).toEqual([]);
  expect((await ask(`ghcr.io/team/tool/blobs/${missing}`, pull)).status).toBe(403);
  expect(pull.missing()).toEqual([missing]);
});

test("a port that is taken is tried again", async () => {
  const port = Number(address.split(":")[1]);
  const second = createPullEndpoint(port);
  const refusal = /^port \d+ on 127\.0\.0\.1 is in use: set SANDGATE_PULL_PORT to another one$/;
  await expect(second.listen()).rejects.toThrow(refusal);
  await expect(second.listen()).rejects.toThrow(refusal);
  await second.close();
});
