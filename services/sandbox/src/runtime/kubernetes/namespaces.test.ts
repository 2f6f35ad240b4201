import { createLogger } from "@sandgate/kit/base/logging";
import { type Api, ApiError, type ApiRequest } from "@sandgate/kubernetes-api/api";
import { expect, test } from "vitest";
import { SandboxRefused } from "../lifecycle.ts";
import { createNamespaces } from "./namespaces.ts";
import { networkPolicyOf, type PodEgressPolicy } from "./network-policy.ts";

const logger = createLogger({ service: "namespaces-test", level: "silent" });
const network: PodEgressPolicy = { nameservers: [], smtp: false, closed: [], deny: [], allow: [] };

/** A server that has these objects by their paths. `conflicts` is what another process changes before each write. */
function openServer(
  objects: Record<string, object> = {},
  o: { namespaces?: number; refusal?: ApiError; conflicts?: Record<string, object>[] } = {},
) {
  const requests: ApiRequest[] = [];
  const api: Api = {
    async call(request) {
      requests.push(request);
      if (request.method === "POST" && o.refusal) throw o.refusal;
      const conflict = request.path.includes("networkpolicies") && request.method !== "GET" && o.conflicts?.shift();
      if (conflict) {
        Object.assign(objects, conflict);
        throw new ApiError(409, "Conflict", "the object has been modified");
      }
      const known = objects[request.path];
      if (request.method === "GET" && !known) throw new ApiError(404, "NotFound", "not found");
      return known ?? {};
    },
    openStream: () => Promise.reject(new Error("unexpected")),
    openText: () => Promise.reject(new Error("nobody asks for text")),
    openSocket: () => Promise.reject(new Error("nobody asks for text")),
    clockAheadMs: () => 0,
    async close() {},
  };
  const given = { namespace: "s", namespaces: 1, installationId: "i", isolation: true, network, logger, ...o };
  return { requests, namespaces: createNamespaces({ ...given, api, pod: { security: "baseline" } }) };
}

/** What is thrown where the API server refuses a pod so. */
const refusedAs = (status: number, message: string) =>
  openServer({}, { refusal: new ApiError(status, "", message) })
    .namespaces.make("s", "pods", {})
    .catch((error: Error) => error);

// As the API server of 1.34 says them.
test.each<[status: number, said: string, told: RegExp]>([
  [
    403,
    'pods "p" is forbidden: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2',
    /^The cluster's quota /,
  ],
  [403, 'pods "p" is forbidden: failed quota: few: must specify limits.cpu for: sandbox', /^The cluster's quota /],
  [403, 'pods "p" is forbidden: maximum memory usage per Container is 128Mi, but limit is 256Mi', /^A limit /],
  [403, 'pods "p" is forbidden: minimum cpu usage per Container is 1, but request is 50m', /^A limit /],
  [403, 'pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true', /Pod Security/],
  [403, 'admission webhook "policy.example" denied the request: no', /^A policy /],
  [422, "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'x' with binding 'y' denied request: no", /^A policy /],
  [422, 'Pod "p" is invalid: spec.containers[0].image: Required value', /rejected the sandbox's pod/],
  [400, 'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string', /rejected the sandbox's pod/],
  [403, "something new", /^The cluster refused the sandbox/],
])("%s %s fails the sandbox for good, in words of its own", async (status, said, told) => {
  const error = await refusedAs(status, said);
  expect(error).toBeInstanceOf(SandboxRefused);
  expect(error).toMatchObject({ message: expect.stringMatching(told), failure: { detail: said } });
  expect(error).not.toMatchObject({ message: expect.stringContaining(said) });
});

test.each<[status: number, said: string]>([
  [403, 'pods is forbidden: User "sandbox" cannot create resource "pods" in API group "" in the namespace "s"'],
  [403, 'pods "p" is forbidden: status unknown for quota: few, resources: pods'],
  [403, 'pods "p" is forbidden: unable to create new content in namespace s because it is being terminated'],
  [404, 'namespaces "s" not found'],
])("%s %s is no fault of the sandbox, which is tried again", async (status, said) => {
  expect(await refusedAs(status, said)).toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
});

const policy = "/apis/networking.k8s.io/v1/namespaces/s/networkpolicies/sandgate-i";
const s = { metadata: { labels: { "pod-security.kubernetes.io/enforce": "baseline" } } };
const others = { metadata: {}, spec: { podSelector: {} } };
const ours = { metadata: {}, spec: networkPolicyOf("i", "s", network).spec };
/** As the API server stores it: without lists that are empty. */
const stored = JSON.parse(
  JSON.stringify(ours.spec, (_name, value) => (Array.isArray(value) && value.length === 0 ? undefined : value)),
);
const specWith = (changes: Partial<PodEgressPolicy>) => networkPolicyOf("i", "s", { ...network, ...changes }).spec;

test.each<[what: string, known: object | undefined, conflicts: object[], writes: number]>([
  ["another process updates it to the same", others, [ours], 1],
  ["another process creates the same", undefined, [ours], 1],
  ["another process updates it to another", others, [others], 2],
  ["another process creates another", undefined, [others], 2],
])("a network policy is as it should be where, at the same time, %s", async (_what, known, conflicts, writes) => {
  const { namespaces, requests } = openServer(
    { "/api/v1/namespaces/s": s, ...(known && { [policy]: known }) },
    { conflicts: conflicts.map((each) => ({ [policy]: each })) },
  );
  await namespaces.verify();
  expect(requests.filter(({ method }) => method !== "GET")).toHaveLength(writes);
});

test.each<[what: string, spec: object | undefined, writes: number]>([
  ["the same", stored, 0],
  ["one from which a network was taken that is no longer denied", specWith({ closed: ["10.0.0.0/8"] }), 1],
  [
    "one that opens a network that is no longer allowed",
    specWith({ allow: [{ network: "10.1.0.0/16", port: undefined }] }),
    1,
  ],
  ["one that opens more ports", JSON.parse(JSON.stringify(stored).replace('"port":53', '"port":53,"endPort":99')), 1],
  [
    "one that selects fewer pods",
    { ...stored, podSelector: { ...stored.podSelector, matchExpressions: [{ key: "a", operator: "Exists" }] } },
    1,
  ],
])(
  "a network policy is written again unless it says just what the settings do: it is %s",
  async (_what, spec, writes) => {
    const { namespaces, requests } = openServer({ "/api/v1/namespaces/s": s, [policy]: { metadata: {}, spec } });
    await namespaces.verify();
    const written = requests.filter(({ method }) => method === "PUT").map(({ body }) => body);
    expect(written).toEqual(Array(writes).fill(expect.objectContaining({ spec: ours.spec })));
  },
);

test("a network policy that another process goes on changing is no isolation", async () => {
  const conflicts = [{ [policy]: others }, { [policy]: others }];
  const { namespaces } = openServer({ "/api/v1/namespaces/s": s, [policy]: others }, { conflicts });
  await expect(namespaces.verify()).rejects.toMatchObject({ reason: "ISOLATION_UNAVAILABLE" });
});

test("many that want to know whether the namespaces are as they should be ask once", async () => {
  const { namespaces, requests } = openServer({}, { namespaces: 3 });
  await Promise.all(Array.from({ length: 8 }, () => namespaces.verifyRecent()));
  expect(requests.filter(({ path }) => path === "/api/v1/namespaces/s-1")).toHaveLength(1);
  await namespaces.verifyRecent();
  expect(requests.filter(({ path }) => path === "/api/v1/namespaces/s-1")).toHaveLength(1);
});
