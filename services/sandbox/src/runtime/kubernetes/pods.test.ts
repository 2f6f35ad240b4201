import { createLogger } from "@sandgate/kit/base/logging";
import { type Api, ApiError } from "@sandgate/kubernetes-api/api";
import type { RawPod } from "@sandgate/kubernetes-api/raw-pod";
import { until } from "@sandgate/test-support/until";
import { afterEach, expect, test, vi } from "vitest";
import { finalizer } from "./pod.ts";
import { createPods, type Pods } from "./pods.ts";

// The cache against an API server whose answers are written here; the contract suite runs it against a real one.

const logger = createLogger({ service: "pods-test", level: "silent" });
let pods: Pods;
afterEach(() => pods.close());

function rawPod(sandboxId: string, version: number, uid = `uid-${sandboxId}`): RawPod {
  return {
    metadata: {
      name: `sandgate-${sandboxId}`,
      namespace: "n",
      uid,
      resourceVersion: String(version),
      creationTimestamp: "2026-01-02T03:04:00Z",
      finalizers: [finalizer],
      labels: { "sandgate.io/sandbox-id": sandboxId, "sandgate.io/workspace-id": "w", "sandgate.io/installation": "i" },
    },
    spec: { containers: [{ name: "sandbox" }] },
  };
}

/** A server with these pods. What is pushed goes out on the watch that is open. */
function openServer(known: Map<string, RawPod>, namespaces = ["n"]) {
  const watches: string[] = [];
  let lists = 0;
  let down = false;
  let version = "100";
  let refusals: Error[] = [];
  let push: (event: unknown) => void = () => {};
  const api: Api = {
    async call({ path, query }) {
      if (path.includes("/forbidden/")) throw new ApiError(403, "Forbidden", "pods is forbidden");
      if (down) throw new Error("connection refused");
      lists += 1;
      if (query?.continue || lists > 1) {
        const refusal = refusals.shift();
        if (refusal) throw refusal;
      }
      const all = [...known.values()];
      // Pages of two.
      const from = Number(query?.continue ?? 0);
      const next = from + 2 < all.length ? { continue: String(from + 2) } : {};
      return { metadata: { resourceVersion: version, ...next }, items: all.slice(from, from + 2) };
    },
    async openStream(_path, query, signal) {
      if (down) throw new Error("connection refused");
      // Without bookmarks a quiet watch can't be told from a dead one, and its version grows old.
      expect(query).toMatchObject({ watch: "true", allowWatchBookmarks: "true" });
      watches.push(query.resourceVersion ?? "");
      return follow(signal);
    },
    openText: () => Promise.reject(new Error("nobody asks for text")),
    openSocket: () => Promise.reject(new Error("nobody asks for text")),
    clockAheadMs: () => 0,
    async close() {},
  };
  async function* follow(signal: AbortSignal) {
    const queue: unknown[] = [];
    let wake = () => {};
    push = (event) => {
      queue.push(event);
      wake();
    };
    signal.addEventListener("abort", () => wake());
    while (!signal.aborted) {
      const event = queue.shift();
      if (event === "end") return;
      if (event instanceof Error) throw event;
      if (event) yield event;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
  }
  pods = createPods({ api, namespaces, installationId: "i", logger });
  return {
    watches,
    lists: () => lists,
    push: (event: unknown) => push(event),
    /** What the next requests for a later page, or for another list, are answered with. */
    refuse: (...given: Error[]) => {
      refusals = given;
    },
    setVersion: (given: string) => {
      version = given;
    },
    setDown: (isDown: boolean) => {
      down = isDown;
    },
  };
}

const idsOf = async () => [...(await pods.current()).keys()].toSorted();

test("lists in pages, then follows changes without asking again", async () => {
  const known = new Map(["a", "b", "c"].map((id, index) => [id, rawPod(id, index + 1)]));
  const server = openServer(known);
  expect(await idsOf()).toEqual(["a", "b", "c"]);
  await until(() => expect(server.watches).toEqual(["100"]));
  server.push({ type: "ADDED", object: rawPod("d", 101) });
  server.push({ type: "DELETED", object: rawPod("a", 102) });
  await until(async () => expect(await idsOf()).toEqual(["b", "c", "d"]));
  expect(server.lists()).toBe(2);
});

test("goes on from the last bookmark when the server ends the watch", async () => {
  const server = openServer(new Map());
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  server.push({ type: "BOOKMARK", object: { metadata: { resourceVersion: "250" } } });
  server.push("end");
  await until(() => expect(server.watches).toEqual(["100", "250"]));
  expect(server.lists()).toBe(1);
});

test.each([
  ["an event", { type: "ERROR", object: { code: 410, message: "too old" } }],
  ["a refusal", new ApiError(410, "Expired", "too old")],
])("lists again after 410, given as %s, and drops what is gone meanwhile", async (_how, tooOld) => {
  const known = new Map(["a", "b"].map((id, index) => [id, rawPod(id, index + 1)]));
  const server = openServer(known);
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  const told: string[] = [];
  pods.listen((sandboxId) => told.push(sandboxId));
  known.delete("a");
  known.set("c", rawPod("c", 99));
  server.push(tooOld);
  await until(async () => expect(await idsOf()).toEqual(["b", "c"]));
  expect(told.toSorted()).toEqual(["a", "c"]);
});

test("keeps what a write has answered over what an older event or list says", async () => {
  const known = new Map([["a", rawPod("a", 5)]]);
  const server = openServer(known);
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  pods.apply(rawPod("new", 120));
  pods.apply(rawPod("a", 130));
  server.setVersion("115");
  server.push({ type: "MODIFIED", object: rawPod("a", 110) });
  server.push({ type: "ERROR", object: { code: 410, message: "too old" } });
  await until(() => expect(server.watches).toHaveLength(2));
  expect(await idsOf()).toEqual(["a", "new"]);
  expect((await pods.find("a"))?.version).toBe(130n);
});

test("answers nothing while the server is away, and everything once it is back", async () => {
  const server = openServer(new Map([["a", rawPod("a", 1)]]));
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  server.setDown(true);
  server.push(new Error("connection reset"));
  await until(() => expect(pods.current()).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" }));
  await expect(pods.find("a")).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
  const isThere = pods.waitFor("a", (pod) => pod?.version === 102n, 60_000);
  server.setDown(false);
  await until(() => expect(server.watches).toHaveLength(2));
  server.push({ type: "MODIFIED", object: rawPod("a", 102) });
  expect(await isThere).toBe(true);
  expect(await idsOf()).toEqual(["a"]);
});

test("lists from the beginning when a page has expired", async () => {
  const known = new Map(["a", "b", "c"].map((id, index) => [id, rawPod(id, index + 1)]));
  const server = openServer(known);
  server.refuse(new ApiError(410, "Expired", "The provided continue parameter is too old"));
  expect(await idsOf()).toEqual(["a", "b", "c"]);
  expect(server.lists()).toBe(4);
});

test("a write that is answered late brings no pod back that is gone", async () => {
  const server = openServer(new Map());
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  server.push({ type: "ADDED", object: rawPod("a", 110) });
  server.push({ type: "DELETED", object: rawPod("a", 130) });
  server.push({ type: "ADDED", object: rawPod("b", 131) });
  await until(async () => expect(await idsOf()).toEqual(["b"]));
  expect(pods.apply(rawPod("a", 120))).toBe(true);
  expect(await idsOf()).toEqual(["b"]);
  pods.apply(rawPod("c", 140));
  expect(await idsOf()).toEqual(["b", "c"]);
});

test("a pod of the same name is another one, whatever is still told of the first", async () => {
  const server = openServer(new Map([["a", rawPod("a", 1)]]));
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  pods.apply(rawPod("a", 120, "second"));
  server.push({ type: "MODIFIED", object: rawPod("a", 110) });
  server.push({ type: "DELETED", object: rawPod("a", 115) });
  server.push({ type: "ADDED", object: rawPod("b", 116) });
  await until(async () => expect(await idsOf()).toEqual(["a", "b"]));
  expect((await pods.find("a"))?.uid).toBe("second");
});

test("takes over no pod of another installation", async () => {
  openServer(new Map());
  await pods.current();
  const foreign = rawPod("a", 120);
  foreign.metadata.labels = { ...foreign.metadata.labels, "sandgate.io/installation": "other" };
  expect(pods.apply(foreign)).toBe(false);
  expect(await idsOf()).toEqual([]);
});

test("has what is there after a cluster was restored from a backup, whose versions are lower", async () => {
  const known = new Map(["a", "b"].map((id, index) => [id, rawPod(id, 90 + index)]));
  const server = openServer(known);
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  known.delete("a");
  known.set("b", rawPod("b", 20));
  known.set("c", rawPod("c", 30));
  server.setVersion("50");
  server.push({ type: "BOOKMARK", object: { metadata: { resourceVersion: "51" } } });
  await until(async () => expect(await idsOf()).toEqual(["b", "c"]));
  expect((await pods.find("b"))?.version).toBe(20n);
  await until(() => expect(server.watches).toEqual(["100", "50"]));
  server.push(new ApiError(504, "Timeout", "Too large resource version: 50, current: 40"));
  await until(() => expect(server.lists()).toBe(3));
});

test("opens a watch again that says nothing for longer than bookmarks take, not even a bookmark", async () => {
  const server = openServer(new Map());
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    await pods.current();
    await vi.waitFor(() => expect(server.watches).toHaveLength(1));
    await vi.advanceTimersByTimeAsync(60_000);
    server.push({ type: "BOOKMARK", object: { metadata: { resourceVersion: "250" } } });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(server.watches).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(60_000);
  } finally {
    vi.useRealTimers();
  }
  await until(() => expect(server.watches).toEqual(["100", "250"]));
});

test("says what the server refuses", async () => {
  const server = openServer(new Map());
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  const forbidden = new ApiError(403, "Forbidden", "pods is forbidden");
  server.refuse(...Array.from({ length: 1_000 }, () => forbidden));
  server.push({ type: "ERROR", object: { code: 410, message: "too old" } });
  await until(() =>
    expect(pods.current()).rejects.toMatchObject({ message: expect.stringContaining("403 Forbidden") }),
  );
});

test("a pod is found although another namespace can't be watched, but not all are known then", async () => {
  openServer(new Map([["a", rawPod("a", 1)]]), ["n", "forbidden"]);
  const refused = { reason: "RUNTIME_UNAVAILABLE" };
  await expect(pods.current()).rejects.toMatchObject(refused);
  expect(await pods.find("a")).toMatchObject({ sandboxId: "a" });
  await expect(pods.find("b")).rejects.toMatchObject(refused);
});

test("all who ask while the server is away wait together", async () => {
  const server = openServer(new Map());
  await pods.current();
  await until(() => expect(server.watches).toHaveLength(1));
  server.setDown(true);
  server.push(new Error("connection reset"));
  await until(() => expect(pods.current()).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" }));
  const countTimers = () => process.getActiveResourcesInfo().filter((what) => what === "Timeout").length;
  const before = countTimers();
  const asked = Promise.allSettled(Array.from({ length: 1_000 }, () => pods.current()));
  expect(countTimers()).toBeLessThan(before + 100);
  expect((await asked).every(({ status }) => status === "rejected")).toBe(true);
});
