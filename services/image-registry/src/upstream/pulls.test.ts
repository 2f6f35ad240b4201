import { type RegistryClient, RegistryError, type RegistryProblem } from "@sandgate/registry-client/registry-client";
import { expect, test } from "vitest";
import { createPullAuthorizer, type PullRegistry } from "./pulls.ts";

const digest = `sha256:${"a".repeat(64)}`;
const { signal } = new AbortController();
const registry: PullRegistry = {
  id: "r1",
  version: 1,
  address: { host: "ghcr.io", scheme: "https" },
  credential: { username: "ann", password: "secret" },
};
const request = { workspaceId: "w1", reference: "ghcr.io/team/tool:1", registry };

function clientThat(resolveDigest: RegistryClient["resolveDigest"]): RegistryClient {
  return { checkCredential: async () => {}, resolveDigest };
}

test("a yes is cached for a minute, for this workspace, reference and credential only", async () => {
  let asked = 0;
  let now = 0;
  const authorize = createPullAuthorizer(
    clientThat(async () => {
      asked += 1;
      return digest;
    }),
    () => now,
  );
  const askedFor = async (changed: Partial<typeof request>) => {
    const before = asked;
    await authorize({ ...request, ...changed }, signal);
    return asked - before;
  };
  expect(await authorize(request, signal)).toEqual({
    digest,
    pinnedReference: `ghcr.io/team/tool@${digest}`,
    registryHost: "ghcr.io",
  });
  now = 59_999;
  expect(await askedFor({})).toBe(0);
  expect(await askedFor({ workspaceId: "w2" })).toBe(1);
  expect(await askedFor({ reference: "ghcr.io/team/tool:2" })).toBe(1);
  expect(await askedFor({ registry: { ...registry, version: 2 } })).toBe(1);
  now = 60_000;
  expect(await askedFor({})).toBe(1);
});

test("a no is not cached, and says why", async () => {
  const problems: [RegistryProblem, string][] = [
    ["unauthorized", "IMAGE_PULL_UNAUTHORIZED"],
    ["not_found", "IMAGE_NOT_FOUND_IN_REGISTRY"],
    ["unreachable", "REGISTRY_UNREACHABLE"],
    ["refused_address", "REGISTRY_UNREACHABLE"],
  ];
  let problem: RegistryProblem = "unreachable";
  const authorize = createPullAuthorizer(
    clientThat(async () => {
      throw new RegistryError(problem, "no");
    }),
  );
  for (const [each, reason] of problems) {
    problem = each;
    await expect(authorize(request, signal)).rejects.toThrow(expect.objectContaining({ reason }));
  }
});

test("a credential is not sent to a host that it isn't for", async () => {
  const authorize = createPullAuthorizer(clientThat(async () => digest));
  await expect(authorize({ ...request, reference: "quay.io/team/tool:1" }, signal)).rejects.toThrow(
    expect.objectContaining({ reason: "IMAGE_PULL_UNAUTHORIZED" }),
  );
});
