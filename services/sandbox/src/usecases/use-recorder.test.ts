import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack } from "@bufbuild/protobuf/wkt";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { EventCause, StagedEvent } from "@sandgate/kit/events/outbox";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import { SandboxUsedSchema } from "@sandgate/proto/sandbox/v1/sandbox_events";
import { beforeEach, expect, test } from "vitest";
import type { AuditedUse } from "../domain/audited-uses.ts";
import { createUseRecorder, type UseRecording } from "./use-recorder.ts";

const call: EventCause = {
  requestId: "r",
  clientAddress: "192.0.2.1",
  user: { id: "ann", credential: "session", credentialId: "s1" },
};
const use: AuditedUse = {
  workspaceId: "w1",
  sandboxId: "b1",
  action: "sandbox.exec",
  details: { process_id: "p1", program: "true" },
  outcome: "success",
};

let recorder: UseRecording;
let staged: StagedEvent[][];
let problem: Error | undefined;
let clock: number;

beforeEach(() => {
  staged = [];
  problem = undefined;
  clock = 0;
  recorder = createUseRecorder({
    async stage(events) {
      if (problem) throw problem;
      staged.push([...events]);
    },
    logger: createLogger({ service: "test", level: "silent" }),
    metrics: createMetrics(),
    monotonic: () => clock,
  });
});

/** What was staged, in the order in which it was. */
function entries() {
  return staged.flat().map(({ bytes }) => {
    const event = fromBinary(EventSchema, bytes);
    const used = event.payload && anyUnpack(event.payload, SandboxUsedSchema);
    if (!used) throw new Error("the event has another payload");
    const { action, sandboxId, details, outcome, count } = used;
    const { eventId, workspaceId, actor, clientAddress } = event;
    return { action, sandboxId, details, outcome, count, eventId, workspaceId, user: actor?.userId, clientAddress };
  });
}
const total = () => entries().reduce((sum, { count }) => sum + count, 0);

test("a use has its entry at once, with who did it to what", async () => {
  recorder.record(call, { ...use, id: "p1" });
  await expect.poll(() => staged).toHaveLength(1);
  expect(entries()).toEqual([
    {
      action: "sandbox.exec",
      sandboxId: "b1",
      details: { process_id: "p1", program: "true" },
      outcome: "success",
      count: 1,
      eventId: "p1",
      workspaceId: "w1",
      user: "ann",
      clientAddress: "192.0.2.1",
    },
  ]);
});

test("those that come while others are stored are stored together", async () => {
  for (let i = 0; i < 10; i++) recorder.record(call, { ...use, details: { process_id: `p${i}`, program: "true" } });
  await expect.poll(total).toBe(10);
  expect(staged.length).toBeLessThan(4);
});

test("of hundreds in a minute the first have entries, and the rest one with their number and what they share", async () => {
  for (let i = 0; i < 300; i++) {
    recorder.record(i === 299 ? { ...call, clientAddress: "192.0.2.2" } : call, {
      ...use,
      details: { process_id: `p${i}`, program: "true" },
    });
  }
  recorder.record(call, { ...use, action: "file.write", details: { path: "/a" } });
  await expect.poll(total).toBe(20);
  clock = 60_000;
  recorder.record(call, { ...use, sandboxId: "b2" });
  await expect.poll(total).toBe(302);
  const [many, write, next] = entries().slice(20);
  expect(many).toMatchObject({ details: { program: "true" }, count: 280, user: "ann", clientAddress: "" });
  expect(write).toMatchObject({ action: "file.write", details: { path: "/a" }, count: 1 });
  expect(next).toMatchObject({ sandboxId: "b2", count: 1 });
});

test("one sandbox's flood takes no entries from another, and its own are bounded whatever it does", async () => {
  for (let i = 0; i < 5_000; i++) {
    const user = { id: "eve", credential: "api_token" as const, credentialId: `t${i % 50}` };
    recorder.record({ ...call, user }, { ...use, details: { process_id: `p${i}`, program: `program ${i}` } });
  }
  recorder.record(call, { ...use, sandboxId: "b2", details: { process_id: "q", program: "id" } });
  await recorder.flush();
  expect(total()).toBe(5_001);
  expect(entries()).toHaveLength(20 + 1 + 20 + 1);
  expect(entries()).toContainEqual(
    expect.objectContaining({ sandboxId: "b2", details: { process_id: "q", program: "id" }, count: 1 }),
  );
  // What exceeds all is counted for the workspace alone.
  expect(entries()).toContainEqual(
    expect.objectContaining({ sandboxId: "", workspaceId: "w1", details: {}, user: "eve", count: 4_960 }),
  );
});

test("a user and a workspace have so many entries an hour, and what exceeds them is counted", async () => {
  const by = (id: string): EventCause => ({ ...call, user: { id, credential: "session", credentialId: id } });
  for (let i = 0; i < 3_700; i++) recorder.record(call, { ...use, sandboxId: `b${i}` });
  for (let i = 0; i < 15_000; i++) recorder.record(by(`u${i % 10}`), { ...use, sandboxId: `c${i}` });
  recorder.record(by("bob"), { ...use, workspaceId: "w2", sandboxId: "d" });
  await recorder.flush();
  const counted = entries().filter(({ sandboxId }) => sandboxId === "");
  expect(counted.find(({ user }) => user === "ann")).toMatchObject({ workspaceId: "w1", count: 100 });
  expect(counted.reduce((sum, { count }) => sum + count, 0)).toBe(700);
  expect(entries().filter(({ user }) => user === "bob")).toMatchObject([{ workspaceId: "w2", sandboxId: "d" }]);
  staged = [];
  clock = 3_600_000;
  recorder.record(call, use);
  await recorder.flush();
  expect(entries()).toEqual([expect.objectContaining({ sandboxId: "b1", count: 1 })]);
});

test("what the database can't take is stored once it can, under the same ids", async () => {
  problem = new Error("away");
  const id = newId();
  recorder.record(call, { ...use, id });
  await expect(recorder.flush()).rejects.toBe(problem);
  problem = undefined;
  await recorder.flush();
  expect(entries()).toEqual([expect.objectContaining({ eventId: id })]);
});
