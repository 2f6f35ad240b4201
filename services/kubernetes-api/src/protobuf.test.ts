import { expect, test } from "vitest";
import { encodeEvent, encodeObject } from "./protobuf.fixture.ts";
import { readEvents, readObject } from "./protobuf.ts";
import type { RawPod } from "./raw-pod.ts";

// That the server means the same with these fields is shown by test/contract, with pods of a real one in both formats.

const at = "2026-01-02T03:04:05.000Z";
const pod: RawPod = {
  metadata: {
    name: "sandgate-s1",
    namespace: "n",
    uid: "u1",
    resourceVersion: "7",
    creationTimestamp: at,
    deletionTimestamp: at,
    deletionGracePeriodSeconds: 0,
    finalizers: ["a", "b"],
    labels: { one: "1", empty: "" },
    annotations: { two: "zwei, ü" },
    managedFields: [{ time: at, fieldsV1: { "f:status": { "f:startTime": {} } } }],
  },
  spec: {
    nodeName: "node1",
    schedulingGates: [{ name: "gate" }],
    imagePullSecrets: [{ name: "secret" }],
    activeDeadlineSeconds: 4_000_000_000,
    containers: [{ name: "sandbox", startupProbe: { httpGet: { port: 8080 } } }],
  },
  status: {
    phase: "Running",
    reason: "why",
    message: "because",
    startTime: at,
    conditions: [
      { type: "PodScheduled", status: "False", reason: "Unschedulable", message: "0/1", lastTransitionTime: at },
      { type: "Ready", status: "True" },
    ],
    containerStatuses: [
      { name: "sandbox", started: false, state: { waiting: { reason: "ErrImagePull", message: "denied" } } },
      { name: "sidecar", started: true, state: { running: { startedAt: at } } },
      {
        name: "b",
        state: { terminated: { exitCode: -1, reason: "Error", message: "m", startedAt: at, finishedAt: at } },
      },
      { name: "c", state: { terminated: { exitCode: 0 } } },
    ],
  },
};

async function* inParts(bytes: Uint8Array, size: number): AsyncGenerator<Buffer> {
  for (let from = 0; from < bytes.length; from += size) yield Buffer.from(bytes.subarray(from, from + size));
}

test("a pod is read as from JSON, with what isn't needed left out", () => {
  expect(readObject(encodeObject("Pod", pod))).toEqual(pod);
  const fresh = { ...pod, spec: { containers: [{ name: "sandbox" }] }, status: { phase: "Pending" } };
  expect(readObject(encodeObject("Pod", fresh))).toEqual(fresh);
});

test("a list is read with its pods, and a refusal with its reason", () => {
  const list = { metadata: { resourceVersion: "9", continue: "next" }, items: [pod, pod] };
  expect(readObject(encodeObject("PodList", list))).toEqual(list);
  const refusal = { message: "exceeded quota", reason: "Forbidden", code: 403 };
  expect(readObject(encodeObject("Status", refusal))).toEqual(refusal);
});

test("who set other fields isn't read", () => {
  const managedFields = [{ time: at, fieldsV1: { "f:spec": { "f:nodeName": {} } } }];
  const read = readObject(encodeObject("Pod", { metadata: { managedFields } })) as RawPod;
  expect(read.metadata.managedFields).toEqual([{ time: at, fieldsV1: {} }]);
});

test("what has no time is not taken for one of 1970", () => {
  const never = { name: "sandbox", state: { running: { startedAt: "" } } };
  const { status } = readObject(encodeObject("Pod", { status: { containerStatuses: [never] } })) as RawPod;
  expect(status?.containerStatuses).toEqual([{ name: "sandbox", state: { running: {} } }]);
});

test("the events of a watch are told apart however they arrive", async () => {
  const refusal = { message: "too old", code: 410 };
  const bytes = Buffer.concat([
    encodeEvent("ADDED", pod),
    encodeEvent("BOOKMARK", { metadata: { resourceVersion: "8" } }),
    encodeEvent("ERROR", refusal),
  ]);
  for (const size of [1, 3, 1000, bytes.length]) {
    const events: unknown[] = [];
    for await (const event of readEvents(inParts(bytes, size))) events.push(event);
    expect(events).toMatchObject([
      { type: "ADDED", object: pod },
      { type: "BOOKMARK", object: { metadata: { resourceVersion: "8" } } },
      { type: "ERROR", object: refusal },
    ]);
  }
});

test("anything else is refused", () => {
  expect(() => readObject(Buffer.from('{"kind":"Pod"}'))).toThrow("no object");
  const renamed = Buffer.from(encodeObject("Pod", pod)).toString("latin1").replace("Pod", "Pad");
  expect(() => readObject(Buffer.from(renamed, "latin1"))).toThrow("a Pad");
});
