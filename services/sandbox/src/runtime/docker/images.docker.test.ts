import { expect, test } from "vitest";
import { explainPullFailure } from "./images.docker.ts";

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
