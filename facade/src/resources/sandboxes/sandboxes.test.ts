import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { callOf } from "@sandgate/kit/rpc/context";
import { Role } from "@sandgate/proto/common/v1/access";
import type {
  ExtendSandboxRequest,
  ListSandboxesRequest,
  ProvisionSandboxRequest,
} from "@sandgate/proto/sandbox/v1/sandbox";
import { SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import {
  LogStream,
  type QueryTelemetryRequest,
  type TailTelemetryRequest,
} from "@sandgate/proto/telemetry/v1/telemetry";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { at, openTestPlatform, sandboxMessage, type TestPlatform, userId, workspaceId } from "../../test-platform.ts";

let platform: TestPlatform;
let url: string;
let sessionId: string;
let headers: Record<string, string>;
let asked: {
  provision?: ProvisionSandboxRequest;
  list?: ListSandboxesRequest;
  extend?: ExtendSandboxRequest;
  query?: QueryTelemetryRequest;
  tail?: TailTelemetryRequest;
  waitTimeoutMs?: number | undefined;
};
/** What the next wait answers with; a function is given the call's signal. */
let wait: (signal: AbortSignal) => Promise<ReturnType<typeof sandboxMessage>>;

/** What a read of a sandbox answers. */
let found: ReturnType<typeof sandboxMessage> & {
  stateReason?: string;
  command?: string[];
  pull?: { downloadedBytes: bigint; totalBytes: bigint };
};

async function open(): Promise<TestPlatform> {
  return openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "10000" },
    handlers: {
      sandbox: {
        provisionSandbox: (request) => {
          asked.provision = request;
          if (request.imageId === "too-many") {
            throw new DomainError("PROVISIONING_FAILED", "The quota is used up.", { callersFault: true });
          }
          return { sandbox: { ...sandboxMessage(SandboxState.PROVISIONING), labels: request.labels } };
        },
        listSandboxes: (request) => {
          asked.list = request;
          return { sandboxes: [sandboxMessage()], nextCursor: "" };
        },
        getSandbox: ({ idOrName }) => {
          if (idOrName !== "box") throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
          return { sandbox: found };
        },
        extendSandbox: (request) => {
          asked.extend = request;
          return { sandbox: sandboxMessage() };
        },
        waitSandboxes: async (_request, context) => {
          asked.waitTimeoutMs = callOf(context).timeoutMs();
          return { sandboxes: [await wait(context.signal)] };
        },
      },
      telemetry: {
        queryTelemetry: (request) => {
          asked.query = request;
          return {
            logs: [{ timestamp: at, stream: LogStream.STDERR, log: "line" }],
            metrics: [{ timestamp: at, cpuUsage: 1.5, memoryUsage: 4096 }],
          };
        },
        async *tailTelemetry(request, context) {
          asked.tail = request;
          if (request.position === "bad") throw invalid("header.last-event-id", "is not an id that this stream gave");
          if (request.position === "") yield { position: "p0" };
          yield {
            position: "p1",
            row: { case: "log", value: { timestamp: at, stream: LogStream.STDOUT, log: "a\nb" } },
          };
          yield { position: "p2", row: { case: "metric", value: { timestamp: at, cpuUsage: 1, memoryUsage: 2 } } };
          await once(context.signal, "abort");
        },
      },
    },
  });
}

beforeAll(async () => {
  platform = await open();
  url = await platform.listen();
});
afterAll(() => platform.close());
beforeEach(async () => {
  asked = {};
  found = sandboxMessage();
  // A session of its own for each test, since some end it.
  sessionId = randomUUID();
  headers = {
    authorization: `Bearer ${await platform.signAccessToken({ sid: sessionId })}`,
    "x-workspace-id": workspaceId,
  };
});

const post = (url: string, payload: object) => platform.app.inject({ method: "POST", url, headers, payload });

test("provisions, and answers the whole record", async () => {
  const response = await post("/sandboxes/provision", { image_id: "image-1", labels: { team: "a", "x\ny": "" } });
  expect(response.statusCode).toBe(201);
  expect(asked.provision).toMatchObject({ imageId: "image-1", name: "", labels: { team: "a", "x\ny": "" } });
  const time = "2026-05-28T20:26:40.123Z";
  expect(response.json()).toEqual({
    id: "01900000-0000-7000-8000-0000000000aa",
    name: "box",
    workspace_id: workspaceId,
    image_id: "image-1",
    image: "registry.test/app:1",
    image_digest: null,
    state: "provisioning",
    state_reason: null,
    message: null,
    hint: null,
    exit_code: null,
    labels: { team: "a", "x\ny": "" },
    command: null,
    env_names: [],
    memory_mb: 512,
    readiness_port: null,
    ttl_seconds: null,
    idle_timeout_seconds: null,
    created_by: userId,
    created_at: time,
    updated_at: time,
    last_used_at: null,
    ready_at: null,
    expires_at: null,
    stopped_at: null,
    pull: null,
    timeline: [{ phase: "accepted", at: time }],
  });
});

test("reports bad names and labels, and an unknown image by any id", async () => {
  const labels = { good: "x", bad: 1, ["k".repeat(64)]: "x" };
  const response = await post("/sandboxes/provision", { image_id: "i", name: "Not-", labels });
  expect(response.json().error.details.map(({ field }: { field: string }) => field)).toEqual([
    "body.name",
    "body.labels",
    "body.labels.bad",
  ]);
  for (const image_id of ["", "x".repeat(129)]) {
    expect((await post("/sandboxes/provision", { image_id })).json().error.code).toBe("image_not_found");
  }
});

test("refuses a label that no list could be filtered by, since a colon ends the key there", async () => {
  const { error } = (await post("/sandboxes/provision", { image_id: "i", labels: { "a:b": "c" } })).json();
  expect(error.details).toEqual([{ field: "body.labels", issue: "must have keys without a colon" }]);
  expect((await post("/sandboxes/provision", { image_id: "i", labels: { a: "b:c" } })).statusCode).toBe(201);
});

test("provisions by an image's name, with a command, variables, a time to live and an idle time", async () => {
  const command = ["sh", "-c", "echo $HOME"];
  const env = { EMPTY: "", "a.b-c_1": "=\n" };
  const given = { image: "python", name: "box", command, env, ttl_seconds: 60, idle_timeout_seconds: 90 };
  expect((await post("/sandboxes/provision", given)).statusCode).toBe(201);
  const times = { ttlSeconds: 60, idleTimeoutSeconds: 90 };
  expect(asked.provision).toMatchObject({ imageId: "", image: "python", name: "box", command, env, ...times });
  expect((await post("/sandboxes/provision", { image: "python", ttl_seconds: null })).statusCode).toBe(201);
  expect(asked.provision?.ttlSeconds).toBeUndefined();
  const longest = `${"n".repeat(100)}:${"t".repeat(128)}`;
  expect((await post("/sandboxes/provision", { image: longest })).statusCode).toBe(201);
  expect(asked.provision?.image).toBe(longest);
});

test.each([
  [{}, "body.image_id"],
  [{ image_id: "i", image: "python" }, "body.image"],
  [{ image: "x".repeat(230) }, "body.image"],
  [{ image: "python", command: [] }, "body.command"],
  [{ image: "python", command: "true" }, "body.command"],
  [{ image: "python", command: ["a\0b"] }, "body.command.0"],
  [{ image: "python", command: Array.from({ length: 5_000 }, () => 1) }, "body.command"],
  [{ image: "python", env: { "1A": "secret" } }, "body.env"],
  [{ image: "python", env: { "": "secret" } }, "body.env"],
  [{ image: "python", env: { "A=B": "secret" } }, "body.env"],
  [{ image: "python", env: { A: "sec\0ret" } }, "body.env.A"],
  [{ image: "python", env: { A: 1 } }, "body.env.A"],
  [{ image: "python", env: ["A=secret"] }, "body.env"],
  [{ image: "python", idle_timeout_seconds: 59 }, "body.idle_timeout_seconds"],
  [{ image: "python", idle_timeout_seconds: null }, "body.idle_timeout_seconds"],
  [{ image: "python", ttl_seconds: 59 }, "body.ttl_seconds"],
  [{ image: "python", ttl_seconds: 86_401 }, "body.ttl_seconds"],
])("refuses the provision %#", async (body, field) => {
  const response = await post("/sandboxes/provision", body);
  expect(response.statusCode).toBe(422);
  expect(response.json().error.details).toEqual([{ field, issue: expect.stringMatching(/\S/) }]);
  expect(response.body).not.toContain("secret");
});

test("shows what to do about a failed sandbox, and nothing about another", async () => {
  const read = async (state: SandboxState, stateReason: string) => {
    found = { ...sandboxMessage(state), stateReason, command: ["true"] };
    return (await platform.app.inject({ url: "/sandboxes/box", headers })).json();
  };
  expect(await read(SandboxState.FAILED, "out_of_memory")).toMatchObject({
    hint: expect.stringContaining("memory_mb"),
    command: ["true"],
  });
  expect((await read(SandboxState.FAILED, "not known yet")).hint).toBeNull();
  expect((await read(SandboxState.STOPPED, "ttl_expired")).hint).toBeNull();
});

test("shows how far the pull is", async () => {
  found = { ...sandboxMessage(), pull: { downloadedBytes: 5n, totalBytes: 6_000_000_000n } };
  const { pull } = (await platform.app.inject({ url: "/sandboxes/box", headers })).json();
  expect(pull).toEqual({ downloaded_bytes: 5, total_bytes: 6_000_000_000 });
});

test("extends", async () => {
  const response = await post("/sandboxes/box/extend", { ttl_seconds: 90, shorten: true });
  expect(response.json()).toMatchObject({ name: "box" });
  expect(asked.extend).toMatchObject({ idOrName: "box", ttlSeconds: 90, shorten: true });
  for (const ttl_seconds of [59, 86_401, "90", null, undefined]) {
    const refused = await post("/sandboxes/box/extend", { ttl_seconds });
    expect(refused.json().error.details[0].field).toBe("body.ttl_seconds");
  }
});

test("lists by states, labels and the start of a name", async () => {
  const url = "/sandboxes?state=ready,failed&label=a:b:c&label=d:&name=bo";
  const response = await platform.app.inject({ url, headers });
  expect(response.json()).toMatchObject({ sandboxes: [{ name: "box" }], next_cursor: null });
  expect(asked.list?.states).toEqual([SandboxState.READY, SandboxState.FAILED]);
  expect(asked.list?.labels).toEqual({ a: "b:c", d: "" });
  expect(asked.list?.namePrefix).toBe("bo");
  expect(asked.list?.page).toMatchObject({ limit: 100, cursor: "" });
  const refused = await platform.app.inject({ url: "/sandboxes?state=ready,gone&label=x", headers });
  expect(refused.json().error.details.map(({ field }: { field: string }) => field)).toEqual([
    "query.state",
    "query.label",
  ]);
});

test.each([
  [sandboxMessage(), 200, undefined],
  [sandboxMessage(SandboxState.PROVISIONING), 409, "sandbox_not_ready"],
  [sandboxMessage(SandboxState.FAILED), 502, "provisioning_failed"],
  [sandboxMessage(SandboxState.STOPPING), 409, "conflict"],
  [sandboxMessage(SandboxState.STOPPED), 409, "conflict"],
])("answers a wait that ends with %#", async (sandbox, status, code) => {
  wait = async () => ({ ...sandbox, stateReason: "image_not_found_in_registry", message: "no app:1 there" });
  const response = await post("/sandboxes/wait", { sandbox_id: "box", timeout_seconds: 50 });
  expect(response.statusCode).toBe(status);
  expect(response.json().error?.code).toBe(code);
  if (code === "provisioning_failed") {
    expect(response.json().error.message).toContain("no app:1 there");
    expect(response.json().error.hint).toContain("name and tag");
  }
  // Of this moment, a little later.
  expect(asked.waitTimeoutMs).toBeGreaterThan(40_000);
  expect(asked.waitTimeoutMs).toBeLessThanOrEqual(55_000);
});

test("metrics tell what the platform failed at from what the image, its program or a quota did", async () => {
  const failures = async () => {
    const text = await platform.metrics.getSingleMetricAsString("sandgate_http_request_seconds");
    const counts = text.matchAll(/_count\{.*route="([^"]*)",status="502",fault="(\w+)",live="\w+"\} (\d+)/g);
    return Object.fromEntries([...counts].map(([, route, fault, count]) => [`${route} ${fault}`, count]));
  };
  const before = await failures();
  for (const platformsFault of [false, true]) {
    wait = async () => ({ ...sandboxMessage(SandboxState.FAILED), platformsFault });
    await post("/sandboxes/wait", { sandbox_id: "box" });
  }
  expect((await post("/sandboxes/provision", { image_id: "too-many" })).statusCode).toBe(502);
  const grown = async () => {
    const after = await failures();
    return Object.keys(after).filter((key) => after[key] !== before[key]);
  };
  await expect
    .poll(async () => (await grown()).toSorted())
    .toEqual(["/sandboxes/provision client", "/sandboxes/wait client", "/sandboxes/wait platform"]);
});

test("ends a wait whose client goes away", async () => {
  const client = new AbortController();
  const ended = new Promise<void>((resolve) => {
    wait = async (signal) => {
      client.abort();
      await once(signal, "abort");
      resolve();
      return sandboxMessage();
    };
  });
  const request = fetch(`${url}/sandboxes/wait`, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: JSON.stringify({ sandbox_id: "box" }),
    signal: client.signal,
  });
  await expect(request).rejects.toThrow();
  await ended;
});

test("tells nothing at the end of a wait to who has lost access meanwhile", async () => {
  wait = async () => {
    platform.state.role = Role.UNSPECIFIED;
    platform.bus.signal("workspace.membership", `${workspaceId} ${userId}`);
    return sandboxMessage();
  };
  const removed = await post("/sandboxes/wait", { sandbox_id: "box" });
  platform.state.role = Role.OWNER;
  platform.bus.signal("workspace.membership", `${workspaceId} ${userId}`);
  expect(removed.json().error.code).toBe("workspace_forbidden");

  wait = async () => {
    platform.bus.signal("identity.sessions.ended", sessionId);
    return sandboxMessage();
  };
  expect((await post("/sandboxes/wait", { sandbox_id: "box" })).json().error.code).toBe("invalid_token");
});

test("ends a wait with the membership and with the session, and says why", async () => {
  const waiting = (lose: () => void) => {
    wait = async (signal) => {
      lose();
      await once(signal, "abort");
      return sandboxMessage();
    };
    return post("/sandboxes/wait", { sandbox_id: "box", timeout_seconds: 240 });
  };
  const removed = await waiting(() => {
    platform.state.role = Role.UNSPECIFIED;
  });
  platform.state.role = Role.OWNER;
  platform.bus.signal("workspace.membership", `${workspaceId} *`);
  expect(removed.json().error.code).toBe("workspace_forbidden");

  const signedOut = await waiting(() => platform.bus.signal("identity.sessions.ended", sessionId));
  expect(signedOut.json().error.code).toBe("invalid_token");
});

test("reports labels that are too many once, not each of them", async () => {
  const labels = Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`l${i}`, i]));
  const { error } = (await post("/sandboxes/provision", { image_id: "i", labels })).json();
  expect(error.details).toEqual([{ field: "body.labels", issue: "must have 64 entries or fewer" }]);
});

test("caps the open waits of a credential", async () => {
  const waiting: (() => void)[] = [];
  const all = new Promise<void>((resolve) => {
    wait = () =>
      new Promise((answer) => {
        waiting.push(() => answer(sandboxMessage()));
        if (waiting.length === 100) resolve();
      });
  });
  const open = Array.from({ length: 100 }, () => post("/sandboxes/wait", { sandbox_id: "box" }));
  await all;
  const refused = await post("/sandboxes/wait", { sandbox_id: "box" });
  expect(refused.statusCode).toBe(429);
  expect(refused.headers["retry-after"]).toBe("1");
  for (const answer of waiting) answer();
  expect((await Promise.all(open)).every(({ statusCode }) => statusCode === 200)).toBe(true);
  wait = async () => sandboxMessage();
  expect((await post("/sandboxes/wait", { sandbox_id: "box" })).statusCode).toBe(200);
});

test("caps the open waits of a user over all credentials", async () => {
  const waiting: (() => void)[] = [];
  const all = new Promise<void>((resolve) => {
    wait = () =>
      new Promise((answer) => {
        waiting.push(() => answer(sandboxMessage()));
        if (waiting.length === 200) resolve();
      });
  });
  const waitAs = async (claims: { sid: string; sub?: string }) =>
    platform.app.inject({
      method: "POST",
      url: "/sandboxes/wait",
      headers: { ...headers, authorization: `Bearer ${await platform.signAccessToken(claims)}` },
      payload: { sandbox_id: "box" },
    });
  const open = Array.from({ length: 200 }, (_, i) => waitAs({ sid: `s${i % 2}` }));
  await all;
  const refused = await waitAs({ sid: "another" });
  expect(refused.statusCode).toBe(429);
  expect(refused.json().error.message).toBe("Your credentials together have 200 waits and streams open.");
  wait = async () => sandboxMessage();
  expect((await waitAs({ sid: "of another", sub: randomUUID() })).statusCode).toBe(200);
  for (const answer of waiting) answer();
  expect((await Promise.all(open)).every(({ statusCode }) => statusCode === 200)).toBe(true);
  expect((await waitAs({ sid: "another" })).statusCode).toBe(200);
});

test("reads logs and metrics with the sandbox's id and name", async () => {
  const response = await platform.app.inject({
    url: "/sandbox/monitoring/box?since=2026-01-01T00:00:00&until=&stream=&limit=5&include=logs",
    headers,
  });
  expect(response.json()).toEqual({
    sandbox_id: "01900000-0000-7000-8000-0000000000aa",
    sandbox_name: "box",
    logs: [{ timestamp: "2026-05-28T20:26:40.123456Z", stream: "stderr", log: "line" }],
    metrics: [{ timestamp: "2026-05-28T20:26:40.123Z", cpu_usage: 1.5, memory_usage: 4096 }],
  });
  expect(asked.query).toMatchObject({
    sandboxId: "01900000-0000-7000-8000-0000000000aa",
    since: { seconds: 1_767_225_600n },
    limit: 5,
    stream: LogStream.UNSPECIFIED,
    includeLogs: true,
    includeMetrics: false,
  });
});

test.each([
  ["since=2026-01-01", ["query.since"]],
  ["since=2026-01-02T00:00:00Z&until=2026-01-02T00:00:00Z", ["query.since"]],
  ["since=2100-01-01T00:00:00Z", ["query.since"]],
  ["limit=0&since=2026-01-03T00:00:00Z&until=2026-01-02T00:00:00Z", ["query.limit", "query.since"]],
  ["limit=10001", ["query.limit"]],
  ["stream=both", ["query.stream"]],
  ["include=", ["query.include"]],
  ["include=logs,traces", ["query.include"]],
])("refuses the window %s", async (query, fields) => {
  const response = await platform.app.inject({ url: `/sandbox/monitoring/box?${query}`, headers });
  expect(response.json().error.details.map(({ field }: { field: string }) => field)).toEqual(fields);
});

test("finds no sandbox by a name nobody has", async () => {
  for (const url of ["/sandbox/monitoring/x", "/sandbox/monitoring/x/stream", `/sandboxes/${"x".repeat(200)}`]) {
    const response = await platform.app.inject({ url, headers });
    expect(response.statusCode).toBe(404);
    expect(response.json().error.code).toBe("sandbox_not_found");
  }
});

/** Opens a stream and collects what arrives. */
async function follow(extra: Record<string, string> = {}, base = url) {
  const [response]: IncomingMessage[] = await once(
    get(`${base}/sandbox/monitoring/box/stream`, { headers: { ...headers, ...extra }, agent: false }),
    "response",
  );
  if (!response) throw new Error("no response");
  let text = "";
  response.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  return { response, text: () => text, ended: once(response, "close") };
}

test("streams rows as events, and resumes after the last one", async () => {
  const { response, text } = await follow({ "last-event-id": "p0" });
  expect(response.headers["content-type"]).toBe("text/event-stream; charset=utf-8");
  expect(response.headers["x-request-id"]).toBeDefined();
  expect(response.headers["ratelimit-limit"]).toBe("10000");
  while (!text().includes("memory_usage")) await once(response, "data");
  expect(text()).toContain(
    'id: p1\nevent: log\ndata: {"timestamp":"2026-05-28T20:26:40.123456Z","stream":"stdout","log":"a\\nb"}\n\n',
  );
  expect(text()).toContain("id: p2\nevent: metric\n");
  expect(asked.tail).toMatchObject({ position: "p0", includeLogs: true, includeMetrics: true });
  response.destroy();
});

test("a stream that starts now has an id before its first event", async () => {
  const { response, text } = await follow();
  while (!text().includes("memory_usage")) await once(response, "data");
  expect(text()).toMatch(/^: stream\n\nid: p0\n\nid: p1\nevent: log\n/);
  response.destroy();
});

test("refuses to resume after an id that no stream gave", async () => {
  const url = "/sandbox/monitoring/box/stream";
  const response = await platform.app.inject({ url, headers: { ...headers, "last-event-id": "bad" } });
  expect(response.statusCode).toBe(422);
  expect(response.json().error.details[0].field).toBe("header.last-event-id");
});

test("ends a stream with the session", async () => {
  const { ended } = await follow();
  platform.bus.signal("identity.sessions.ended", sessionId);
  await ended;
});

test("a stream outlasts its access token, and not the session", async () => {
  const token = await platform.signAccessToken({ sid: sessionId, expiresInSeconds: 1 });
  const { response, ended } = await follow({ authorization: `Bearer ${token}` });
  let isOpen = true;
  void ended.then(() => {
    isOpen = false;
  });
  await delay(2_500);
  expect(isOpen).toBe(true);
  expect(response.statusCode).toBe(200);
  platform.bus.signal("identity.sessions.ended", sessionId);
  await ended;
});

test("ends a stream with the membership", async () => {
  const { ended } = await follow();
  platform.state.role = Role.UNSPECIFIED;
  await ended;
  platform.state.role = Role.OWNER;
  platform.bus.signal("workspace.membership", `${workspaceId} *`);
});

test("answers HEAD for a stream without opening one", async () => {
  const response = await platform.app.inject({ method: "HEAD", url: "/sandbox/monitoring/box/stream", headers });
  expect(response.statusCode).toBe(200);
  expect(response.headers["content-type"]).toBe("text/event-stream; charset=utf-8");
  expect(asked.tail).toBeUndefined();
});

test("ends waits and streams at once when it drains, is not ready then, and answers the rest", async () => {
  const draining = await open();
  const headers = { authorization: `Bearer ${await draining.signAccessToken()}`, "x-workspace-id": workspaceId };
  const { ended } = await follow(headers, await draining.listen());
  wait = async (signal) => {
    void draining.drain();
    if (!signal.aborted) await once(signal, "abort");
    return sandboxMessage(SandboxState.PROVISIONING);
  };
  const payload = { sandbox_id: "box" };
  const waited = await draining.app.inject({ method: "POST", url: "/sandboxes/wait", headers, payload });
  expect(waited.json().error.code).toBe("sandbox_not_ready");
  await ended;
  const stream = await draining.app.inject({ url: "/sandbox/monitoring/box/stream", headers });
  expect(stream).toMatchObject({ statusCode: 200, headers: { "content-type": "text/event-stream; charset=utf-8" } });
  expect(stream.body).toBe(": stream\n\n");
  expect((await draining.app.inject("/readyz")).json().error.code).toBe("upstream_error");
  expect((await draining.app.inject({ url: "/sandboxes/box", headers })).statusCode).toBe(200);
  await draining.close();
});

test("metrics tell what lasts as long as a sandbox wants from what should be fast", async () => {
  wait = async () => sandboxMessage(SandboxState.READY);
  await post("/sandboxes/wait", { sandbox_id: "box" });
  await post("/sandboxes/provision", { image_id: "too-many" });
  const text = await platform.metrics.getSingleMetricAsString("sandgate_http_request_seconds");
  const labels = [...text.matchAll(/_count\{.*route="([^"]*)".*,live="(\w+)"\}/g)].map(([, route, live]) => [
    route,
    live,
  ]);
  expect(labels).toContainEqual(["/sandboxes/wait", "true"]);
  expect(labels).toContainEqual(["/sandboxes/provision", "false"]);
});
