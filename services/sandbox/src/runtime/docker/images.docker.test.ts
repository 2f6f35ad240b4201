import { createServer } from "node:http";
import { join } from "node:path";
import { openEngine } from "@sandgate/docker-engine/client";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { createDockerImages, explainPullFailure } from "./images.docker.ts";

/** As the client reports what the engine answered. */
function answered(message: string, statusCode = 500): Error {
  return Object.assign(new Error(`(HTTP code ${statusCode}) server error - ${message} `), { statusCode });
}

test.each([
  ["manifest for r.test/a@sha256:0 not found: manifest unknown: manifest unknown", "IMAGE_NOT_FOUND_IN_REGISTRY"],
  ["name unknown: repository name not known to registry", "IMAGE_NOT_FOUND_IN_REGISTRY"],
  ['Get "https://r.test/v2/a/manifests/1": no basic auth credentials', "IMAGE_PULL_UNAUTHORIZED"],
  ["unauthorized: authentication required", "IMAGE_PULL_UNAUTHORIZED"],
  ["pull access denied for a, repository does not exist or may require 'docker login'", "IMAGE_PULL_UNAUTHORIZED"],
  ['Get "http://127.0.0.1:1/v2/": dial tcp 127.0.0.1:1: connect: connection refused', "REGISTRY_UNREACHABLE"],
  ['Get "https://r.invalid/v2/": dial tcp: lookup r.invalid on 192.0.2.53:53: no such host', "REGISTRY_UNREACHABLE"],
  ["received unexpected HTTP status: 503 Service Unavailable", "REGISTRY_UNREACHABLE"],
  ["toomanyrequests: You have reached your pull rate limit.", "REGISTRY_UNREACHABLE"],
  ["no matching manifest for linux/amd64 in the manifest list entries", "PROVISIONING_FAILED"],
  ["write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "RUNTIME_UNAVAILABLE"],
])("takes %j for %s", (message, reason) => {
  const explained = explainPullFailure(answered(message), "r.test");
  expect(explained).toMatchObject({ reason });
  expect(explained.message).not.toContain(message);
});

test("takes no answer at all for an engine out of reach", () => {
  const error = Object.assign(new Error("connect ENOENT /var/run/docker.sock"), { code: "ENOENT" });
  expect(explainPullFailure(error, "r.test")).toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
});

test("lists images, with their labels left out", async ({ folder }) => {
  const socket = join(folder, "engine.sock");
  const images = [
    { Id: "sha256:1", RepoDigests: ["r.test/a@sha256:0"], Size: 7, Labels: { a: "x".repeat(1_000_000) } },
    { Id: "sha256:2", RepoDigests: null, Size: 8 },
  ];
  await using server = createServer(({ url }, response) =>
    response.end(JSON.stringify(url?.includes("/images/json") ? images : [{ ImageID: "sha256:1" }])),
  );
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  expect(await createDockerImages(openEngine(`docker://${socket}`)).list()).toEqual([
    { id: "sha256:1", names: ["r.test/a@sha256:0"], sizeBytes: 7, isUsed: true },
    { id: "sha256:2", names: [], sizeBytes: 8, isUsed: false },
  ]);
});
