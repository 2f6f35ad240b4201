import { createLogger } from "@sandgate/kit/base/logging";
import { type Api, ApiError, type ApiRequest } from "@sandgate/kubernetes-api/api";
import { expect, test } from "vitest";
import { SandboxRefused } from "../lifecycle.ts";
import { createNamespaces } from "./namespaces.ts";

const logger = createLogger({ service: "namespaces-test", level: "silent" });
const network = { nameservers: [], smtp: false, closed: [], deny: [], allow: [] };

/** A server that has these objects by their paths. */
function openServer(objects: Record<string, object> = {}, o: { namespaces?: number; refusal?: ApiError } = {}) {
  const requests: ApiRequest[] = [];
  const api: Api = {
    async call(request) {
      requests.push(request);
      if (request.method === "POST" && o.refusal) throw o.refusal;
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

test("many that want to know whether the namespaces are as they should be ask once", async () => {
  const { namespaces, requests } = openServer({}, { namespaces: 3 });
  await Promise.all(Array.from({ length: 8 }, () => namespaces.verifyRecent()));
  expect(requests.filter(({ path }) => path === "/api/v1/namespaces/s-1")).toHaveLength(1);
  await namespaces.verifyRecent();
  expect(requests.filter(({ path }) => path === "/api/v1/namespaces/s-1")).toHaveLength(1);
});
