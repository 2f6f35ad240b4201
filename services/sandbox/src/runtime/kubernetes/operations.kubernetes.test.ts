import { EventEmitter } from "node:events";
import { text } from "node:stream/consumers";
import { type Api, ApiError } from "@sandgate/kubernetes-api/api";
import { expect, test } from "vitest";
import { HelperUnavailable } from "../helper-end.ts";
import { createKubernetesOperations } from "./operations.kubernetes.ts";
import type { Pod } from "./pod.ts";

const pod: Pod = {
  name: "sandgate-s1",
  namespace: "n",
  uid: "u1",
  version: 1n,
  sandboxId: "s1",
  createdAt: new Date(),
  isHeld: true,
  isGated: false,
  hasPullSecret: false,
  isSettled: true,
  awaitsHelper: false,
  nodeName: "node1",
  phase: "Running",
  reason: "",
  message: "",
  nodeAheadMs: 0,
};
const { signal } = new AbortController();

/** Operations of a cluster where exec ends as this says, or is refused. */
function open(o: { status?: object; refused?: ApiError; pod?: Pod | undefined; hasHelper?: boolean }) {
  const asked: string[] = [];
  const openSocket = async (path: string, query: URLSearchParams) => {
    asked.push(`${path}?${query}`);
    if (o.refused) throw o.refused;
    const socket = new EventEmitter();
    const say = () => socket.emit("message", Buffer.from(`\u0003${JSON.stringify(o.status)}`));
    return Object.assign(socket, { pause() {}, terminate() {}, resume: () => process.nextTick(say) });
  };
  const { connectHelper } = createKubernetesOperations({
    api: { openSocket } as unknown as Api,
    pods: { find: async () => ("pod" in o ? o.pod : pod) } as never,
    observer: { now: () => new Date() } as never,
    hasHelper: o.hasHelper ?? true,
  });
  const connect = async () => text(await connectHelper("s1", signal));
  return { connect, asked };
}

const failure = (message: string, ...causes: object[]) => ({ status: "Failure", message, details: { causes } });
const missing = failure('exec: "/.sandgate/helper": stat /.sandgate/helper: no such file or directory: unknown');

test("asks for the helper in the sandbox's own container", async () => {
  const { connect, asked } = open({ status: { status: "Success" } });
  await expect(connect()).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
  expect(asked).toEqual([
    "/api/v1/namespaces/n/pods/sandgate-s1/exec?container=sandbox&stdin=true&stdout=true&stderr=true&command=%2F.sandgate%2Fhelper&command=dial",
  ]);
});

test("a node that can't be reached is not taken for a sandbox that can't start its helper", async () => {
  const unreachable = failure("error dialing backend: dial tcp 10.0.0.7:10250: connect: connection refused");
  await expect(open({ status: unreachable }).connect()).rejects.not.toBeInstanceOf(HelperUnavailable);
  await expect(open({ status: unreachable }).connect()).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
  const gone = failure('unable to upgrade connection: container not found ("sandbox")');
  await expect(open({ status: gone }).connect()).rejects.toBeInstanceOf(HelperUnavailable);
});

test("a pod without a helper is a conflict that says what to do", async () => {
  await expect(open({ status: missing }).connect()).rejects.toMatchObject({
    reason: "CONFLICT",
    errno: "ENOSYS",
    hint: expect.stringContaining("Provision a new sandbox"),
  });
  await expect(open({ status: missing, hasHelper: false }).connect()).rejects.toMatchObject({
    reason: "CONFLICT",
    errno: "ENOSYS",
    hint: expect.stringContaining("SANDGATE_HELPER_IMAGE"),
  });
  // What the program itself says is the tenant's word.
  const said = failure("command terminated", { reason: "ExitCode", message: "1" });
  await expect(open({ status: said, hasHelper: false }).connect()).rejects.toMatchObject({
    reason: "RUNTIME_UNAVAILABLE",
  });
});

test("a sandbox that has ended is not asked, and one that the node does not find is told as ended", async () => {
  const deleted = { ...pod, isHeld: false, deletionAt: new Date() };
  for (const gone of [undefined, deleted, { ...pod, phase: "Failed" }]) {
    const { connect, asked } = open({ pod: gone });
    await expect(connect()).rejects.toMatchObject({ message: "The sandbox does not run any more." });
    expect(asked).toEqual([]);
  }
  const refused = new ApiError(404, "NotFound", "pods not found");
  await expect(open({ refused }).connect()).rejects.toMatchObject({ message: "The sandbox does not run any more." });
});

test("a right that is missing is told to the operator", async () => {
  const refused = new ApiError(403, "Forbidden", "pods is forbidden: cannot create resource pods/exec");
  await expect(open({ refused }).connect()).rejects.toMatchObject({
    reason: "RUNTIME_UNAVAILABLE",
    message: "The Kubernetes API server refused a request (403 Forbidden).",
  });
});
