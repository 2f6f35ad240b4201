import { setImmediate as nextTurn } from "node:timers/promises";
import {
  type RegistryClient,
  RegistryError,
  type RegistryImage,
  type RegistryProblem,
} from "@sandgate/registry-client/registry-client";
import { expect, test } from "vitest";
import { createPullAuthorizer, type PullRegistry, type PullRequest } from "./pulls.ts";

const digestOf = (digit: string) => `sha256:${digit.repeat(64)}`;
const [digest, first, second] = [digestOf("a"), digestOf("b"), digestOf("c")];
const [content, otherContent] = [digestOf("d"), digestOf("e")];
const { signal } = new AbortController();
const registry: PullRegistry = {
  id: "r1",
  version: 1,
  address: { host: "ghcr.io", scheme: "https" },
  credential: { username: "ann", password: "secret" },
};
const request: PullRequest = { workspaceId: "w1", reference: "ghcr.io/team/tool:1", registry };
const image: RegistryImage = {
  digest,
  manifestDigest: digest,
  manifest: Buffer.from("{}"),
  mediaType: "application/vnd.oci.image.manifest.v1+json",
  config: { digest, size: 2, content: Buffer.from("{}") },
  layers: [
    { digest: first, size: 1, diffId: content },
    { digest: second, size: 2, diffId: otherContent },
  ],
};

/** A registry that has the image, and the layers that were verified at registries. */
function open(o: { fail?: () => RegistryError | undefined; now?: () => number } = {}) {
  /** Each question, with the layers that it was about. */
  const asked: string[][] = [];
  const given: Record<string, Record<string, string>> = {};
  function answer(layers: readonly string[]): void {
    const error = o.fail?.();
    if (error) throw error;
    asked.push([...layers]);
  }
  const client: Pick<RegistryClient, "resolveImage" | "checkBlobs"> = {
    async resolveImage(_address, _reference, _credential, _signal, chooseAsked) {
      answer(await chooseAsked(image.layers));
      return image;
    },
    checkBlobs: async (_address, _repository, digests) => answer(digests),
  };
  const findVerified = async (host: string, digests: readonly string[]) =>
    digests.flatMap((layer) => {
      const diffId = given[host]?.[layer];
      return diffId === undefined ? [] : [{ digest: layer, diffId }];
    });
  const authorize = createPullAuthorizer(client, findVerified, o.now);
  return { authorize, asked, given, takeAsked: () => asked.splice(0) };
}

test("an approval is cached for a minute, for this workspace, reference and credential only", async () => {
  let now = 0;
  const { authorize, asked } = open({ now: () => now });
  const askedFor = async (changed: Partial<typeof request>) => {
    const before = asked.length;
    await authorize({ ...request, ...changed }, signal);
    return asked.length - before;
  };
  expect(await authorize(request, signal)).toEqual({
    image,
    pinnedReference: `ghcr.io/team/tool@${digest}`,
    address: registry.address,
    repository: "team/tool",
    verified: new Set(),
  });
  now = 29_999;
  expect(await askedFor({})).toBe(0);
  expect(await askedFor({ workspaceId: "w2" })).toBe(1);
  expect(await askedFor({ reference: "ghcr.io/team/tool:2" })).toBe(1);
  expect(await askedFor({ registry: { ...registry, version: 2 } })).toBe(1);
  now = 60_000;
  expect(await askedFor({})).toBe(1);
});

test("an approval that is used in its second half is renewed meanwhile, once", async () => {
  let now = 0;
  const { authorize, asked } = open({ now: () => now });
  const askedAt = async (ms: number) => {
    now = ms;
    await Promise.all([authorize(request, signal), authorize(request, signal)]);
    await nextTurn();
    return asked.length;
  };
  expect([await askedAt(0), await askedAt(29_999), await askedAt(30_000)]).toEqual([1, 1, 2]);
  // That one's minute is from 30 s to 90 s.
  expect([await askedAt(59_999), await askedAt(89_999), await askedAt(150_000)]).toEqual([2, 3, 4]);
});

test("an approval ends when its renewal is refused, but not when the registry can't say", async () => {
  const problems: RegistryProblem[] = ["unreachable", "unauthorized", "unauthorized"];
  let now = 0;
  let isAsked = false;
  const { authorize } = open({
    now: () => now,
    fail: () => (isAsked ? new RegistryError(problems.shift() ?? "unreachable", "no") : undefined),
  });
  await authorize(request, signal);
  isAsked = true;
  for (now of [30_000, 59_999]) {
    await authorize(request, signal);
    await nextTurn();
  }
  expect(problems).toHaveLength(2);

  isAsked = false;
  now = 60_000;
  await authorize(request, signal);
  isAsked = true;
  now = 90_000;
  await authorize(request, signal);
  await nextTurn();
  await expect(authorize(request, signal)).rejects.toThrow(
    expect.objectContaining({ reason: "IMAGE_PULL_UNAUTHORIZED" }),
  );
  expect(problems).toEqual([]);
});

test("those who ask the same together share an approval, and no failure", async () => {
  const { authorize, asked } = open();
  await Promise.all([request, request, { ...request, workspaceId: "w2" }].map((each) => authorize(each, signal)));
  expect(asked).toHaveLength(2);

  let failures = 0;
  const failing = open({ fail: () => (failures++ === 0 ? new RegistryError("unreachable", "late") : undefined) });
  const outcomes = await Promise.allSettled([request, request].map((each) => failing.authorize(each, signal)));
  expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "fulfilled"]);
});

test("a layer is asked for where it was verified, and has to be downloaded from anywhere else", async () => {
  const { authorize, given, takeAsked } = open();
  given["quay.io"] = { [first]: content, [second]: otherContent };
  given["ghcr.io"] = { [first]: content };
  expect((await authorize(request, signal)).verified).toEqual(new Set([first]));
  expect(takeAsked()).toEqual([[first]]);
});

test("what another workspace verified meanwhile is asked for, once, however fresh the answer is", async () => {
  const { authorize, given, takeAsked } = open();
  expect((await authorize(request, signal)).verified).toEqual(new Set());
  given["ghcr.io"] = { [second]: otherContent };
  expect((await authorize(request, signal)).verified).toEqual(new Set([second]));
  expect((await authorize(request, signal)).verified).toEqual(new Set([second]));
  expect(takeAsked()).toEqual([[], [second]]);
});

test("a config that says of a layer what it isn't is refused", async () => {
  const { authorize, given } = open();
  given["ghcr.io"] = { [first]: otherContent };
  await expect(authorize(request, signal)).rejects.toThrow(
    expect.objectContaining({ reason: "IMAGE_NOT_FOUND_IN_REGISTRY" }),
  );
});

test("an image that no registry can have is not found, without a question", async () => {
  const { authorize, asked } = open();
  const reference = `ghcr.io/${"a".repeat(248)}:1`;
  await expect(authorize({ ...request, reference }, signal)).rejects.toThrow(
    expect.objectContaining({ reason: "IMAGE_NOT_FOUND_IN_REGISTRY" }),
  );
  expect(asked).toEqual([]);
});

test("the reference of an authorized pull may be authorized again, however long its name is", async () => {
  const { authorize } = open();
  const reference = `ghcr.io/${"a".repeat(247)}`;
  const { pinnedReference } = await authorize({ ...request, reference: `${reference}:1` }, signal);
  expect(pinnedReference).toBe(`${reference}@${digest}`);
  expect(await authorize({ ...request, reference: pinnedReference }, signal)).toMatchObject({ pinnedReference });
});

test("a registry that takes no more requests is left alone for as long as it says", async () => {
  let now = 0;
  let fails = 0;
  const { authorize } = open({
    now: () => now,
    fail: () => {
      fails += 1;
      return fails > 1 ? undefined : new RegistryError("rate_limited", "429", { retryAfterSeconds: 120 });
    },
  });
  const waits = [
    { at: 0, retryAfterSeconds: 120 },
    { at: 90_000, retryAfterSeconds: 30 },
    { at: 119_999, retryAfterSeconds: 1 },
  ];
  for (const { at, retryAfterSeconds } of waits) {
    now = at;
    await expect(authorize(request, signal)).rejects.toThrow(
      expect.objectContaining({ reason: "REGISTRY_UNREACHABLE", message: "429", retryAfterSeconds }),
    );
  }
  expect(fails).toBe(1);
  await authorize({ ...request, registry: { ...registry, id: "r2" } }, signal);
  now = 120_000;
  await authorize(request, signal);
  expect(fails).toBe(3);
});

test("an image is pinned by the name of its host that runtimes know a credential by", async () => {
  const { authorize } = open();
  const hub = { ...registry, address: { host: "docker.io", scheme: undefined } };
  for (const host of ["docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com:443"]) {
    for (const given of [hub, undefined]) {
      const pull = await authorize({ ...request, reference: `${host}/team/tool:1`, registry: given }, signal);
      expect(pull.pinnedReference).toBe(`docker.io/team/tool@${digest}`);
    }
  }
  // Without its port it would be a path at Docker Hub.
  const { pinnedReference } = await authorize({ ...request, reference: "HOST/tool:1", registry: undefined }, signal);
  expect(pinnedReference).toBe(`host:443/tool@${digest}`);
});

test("a refusal is not cached, and says why", async () => {
  const problems: [RegistryProblem, string][] = [
    ["unauthorized", "IMAGE_PULL_UNAUTHORIZED"],
    ["not_found", "IMAGE_NOT_FOUND_IN_REGISTRY"],
    ["unreachable", "REGISTRY_UNREACHABLE"],
    ["refused_address", "REGISTRY_UNREACHABLE"],
    ["rate_limited", "REGISTRY_UNREACHABLE"],
  ];
  let problem: RegistryProblem = "unreachable";
  const { authorize } = open({ fail: () => new RegistryError(problem, "no") });
  for (const [each, reason] of problems) {
    problem = each;
    await expect(authorize(request, signal)).rejects.toThrow(expect.objectContaining({ reason }));
  }
});

test("a credential is not sent to a host that it isn't for", async () => {
  const { authorize } = open();
  await expect(authorize({ ...request, reference: "quay.io/team/tool:1" }, signal)).rejects.toThrow(
    expect.objectContaining({ reason: "IMAGE_PULL_UNAUTHORIZED" }),
  );
});

test("a credential is sent to its host where the image names the default port", async () => {
  const { authorize } = open();
  const plain = { ...registry, address: { host: "10.0.0.5", scheme: "http" } } as const;
  const { address } = await authorize({ ...request, reference: "10.0.0.5:80/team/tool:1", registry: plain }, signal);
  expect(address).toBe(plain.address);
});
