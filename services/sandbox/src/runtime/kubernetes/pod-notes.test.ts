import { expect, test } from "vitest";
import { finalizer, type Pod, readPod } from "./pod.ts";
import { createPodEvents } from "./pod-events.ts";
import { createPodNotes } from "./pod-notes.ts";
import type { Pods } from "./pods.ts";

function podOf(sandboxId: string, uid: string): Pod {
  const labels = {
    "sandgate.io/sandbox-id": sandboxId,
    "sandgate.io/workspace-id": "w",
    "sandgate.io/installation": "i",
  };
  const pod = readPod(
    {
      metadata: {
        name: `sandgate-${sandboxId}`,
        namespace: "n",
        uid,
        resourceVersion: "1",
        creationTimestamp: "2026-01-02T03:04:00Z",
        finalizers: [finalizer],
        labels,
      },
      spec: { containers: [{ name: "sandbox" }] },
    },
    "i",
  );
  if (!pod) throw new Error("not a sandbox's pod");
  return pod;
}

/** Tells listeners what a test says. */
function openChanges(): Pick<Pods, "listen"> & { tell: Parameters<Pods["listen"]>[0] } {
  const listeners: Parameters<Pods["listen"]>[0][] = [];
  return {
    listen(onChange) {
      listeners.push(onChange);
      return () => {};
    },
    tell: (sandboxId, pod) => {
      for (const listener of listeners) listener(sandboxId, pod);
    },
  };
}

test("notes go with their pod, whoever removed it, and are none of the next pod's", () => {
  const pods = openChanges();
  const notes = createPodNotes<string>(pods);
  const [a, b, nextB] = [podOf("a", "1"), podOf("b", "2"), podOf("b", "3")];
  notes.set(a, "note of a");
  notes.set(b, "note of b");
  pods.tell("a", a);
  expect([notes.get(a), notes.get(b), notes.get(nextB)]).toEqual(["note of a", "note of b", undefined]);
  pods.tell("b", nextB);
  pods.tell("a", undefined);
  expect([notes.get(a), notes.get(b), notes.get(nextB)]).toEqual([undefined, undefined, undefined]);
  expect(notes.size()).toBe(0);
});

test("a pod's events are asked for ever more rarely, all who ask at once get one answer, and a failure is no answer", async () => {
  const pods = openChanges();
  const pod = podOf("a", "1");
  let nowMs = 0;
  let asked = 0;
  let isDown = false;
  const events = createPodEvents({
    pods,
    now: () => nowMs,
    api: {
      async call({ query }) {
        asked += 1;
        if (isDown) throw new Error("connection refused");
        return { items: [{ message: `${query?.fieldSelector} ${asked}` }] };
      },
    },
  });
  const read = () => events.read(pod, ["Unhealthy"], 1_000);
  const both = await Promise.all([read(), read()]);
  expect(both).toEqual([["involvedObject.uid=1,reason=Unhealthy 1"], ["involvedObject.uid=1,reason=Unhealthy 1"]]);
  // As a probe that goes on failing has it for the two minutes that readiness may take.
  for (; nowMs < 120_000; nowMs += 250) await read();
  expect(asked).toBeLessThan(10);
  expect(await read()).toEqual([`involvedObject.uid=1,reason=Unhealthy ${asked}`]);

  const before = asked;
  expect(await events.read(pod, ["Evicted"], 1_000)).toEqual([`involvedObject.uid=1,reason=Evicted ${before + 1}`]);
  pods.tell("a", undefined);
  isDown = true;
  await expect(read()).rejects.toThrow("refused");
  isDown = false;
  expect(await read()).toEqual([`involvedObject.uid=1,reason=Unhealthy ${before + 3}`]);
});
