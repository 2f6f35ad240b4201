import { setTimeout as delay } from "node:timers/promises";
import type { FaultMode, FaultProxy } from "@sandgate/test-support/fault-proxy";
import { buildImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Answer, expectStatus, uniqueName } from "../conformance/client.ts";
import { openEventStream, readEvents } from "../conformance/event-stream.ts";
import type { Dependency } from "../platform/distributed/fault-proxies.ts";
import {
  type DistributedPlatform,
  requireDistributed,
  single,
  startDistributed,
} from "../platform/distributed/platform.ts";
import { type Part, parts } from "../platform/distributed/replica.ts";
import { lineWriter } from "../platform/line-writer.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { expectFault } from "./faults.ts";

const isAvailable =
  (await requireDistributed()) &&
  (await requireServer("docker", probeEngine)) &&
  (await requireServer("registry", probeRegistry));

/** A call's deadline, the 2 s for which a facade tries to reach the shared rate limit, and time for the rest. */
const answeredMs = 15_000;
/** A facade caches credentials and memberships for up to a second. */
const cachedMs = 1_100;
const broken = ["silent", "down", "reset"] as const;

describe.runIf(isAvailable)("network faults between the processes", { timeout: 600_000 }, () => {
  const credential = { username: "puller", password: "pull-secret-1" };
  let image: TestImage;
  let registry: TestRegistry;
  let platform: DistributedPlatform;
  let operator: Operator;
  let session: { token: string };
  let imageId: string;
  let neverReadyId: string;
  let sandboxId: string;

  beforeAll(async () => {
    registry = await startRegistry({ users: [credential] });
    image = await buildImage(openTestEngine(), { command: ["sh", "-c", lineWriter({ everySeconds: 0.2 })] });
    platform = await startDistributed({
      replicas: single,
      faultProxies: true,
      settings: {
        SANDGATE_REGISTRY_ALLOW: registry.host,
        SANDGATE_WORKSPACE_MAX_SANDBOXES: "0",
        SANDGATE_RATE_LIMIT: "100000",
        SANDGATE_CHANGE_RATE_LIMIT: "100000",
        SANDGATE_SIGNIN_RATE_LIMIT: "100000",
      },
    });
    operator = await openOperator(platform);
    imageId = await operator.registerImage(image.reference);
    neverReadyId = await operator.registerImage(image.reference, { readiness_port: 9 });
    sandboxId = await operator.provisionReady(imageId);
  });
  beforeEach(async () => {
    session = { token: await operator.openSession() };
  });
  afterAll(async () => {
    await platform?.stop();
    await image?.remove();
    await registry?.stop();
  });

  type Send = () => Promise<Answer>;
  const get = (path: string) => () => operator.get(path, operator.as);
  const post = (path: string, body: () => object) => () => operator.post(path, body(), operator.as);
  const requests = {
    signIn: () => operator.post("/auth/login", platform.admin),
    listTokens: () => operator.get("/api-tokens", session),
    listWorkspaces: get("/workspaces"),
    createWorkspace: post("/workspaces", () => ({ name: "w" })),
    listMembers: () => operator.get(`/workspaces/${operator.as.workspace}/members`, operator.as),
    listImages: get("/sandbox-images"),
    createImage: post("/sandbox-images", () => ({ name: "i", image: "busybox" })),
    addRegistry: post("/registries", () => ({
      name: uniqueName("r"),
      url: `http://${registry.host}`,
      ...credential,
    })),
    listRegistries: get("/registries"),
    listSandboxes: get("/sandboxes"),
    async provision() {
      const answer = await operator.post("/sandboxes/provision", { image_id: imageId }, operator.as);
      if (answer.status === 201) await operator.delete(`/sandboxes/${answer.body.id}`, operator.as);
      return answer;
    },
    wait: () => operator.post("/sandboxes/wait", { sandbox_id: sandboxId, timeout_seconds: 5 }, operator.as),
    monitor: () => operator.get(`/sandbox/monitoring/${sandboxId}`, operator.as),
    describe: () => operator.get("/openapi.json"),
  } satisfies Record<string, Send>;
  type RequestName = keyof typeof requests;
  const all = Object.keys(requests) as RequestName[];

  interface Fault {
    what: string;
    /** All broken at once. */
    connections: (readonly [from: Part, to: Dependency])[];
    /** Requests that fail meanwhile. */
    fails: RequestName[];
    /** Requests that succeed meanwhile. */
    spares: RequestName[];
  }
  const faults: Fault[] = [
    {
      what: "the facade and identity",
      connections: [["facade", "identity"]],
      fails: ["signIn", "listTokens", "listWorkspaces", "listImages", "listSandboxes"],
      spares: ["describe"],
    },
    {
      what: "the facade and workspace",
      connections: [["facade", "workspace"]],
      fails: ["listWorkspaces", "createWorkspace", "listImages", "listSandboxes"],
      spares: ["signIn", "listTokens"],
    },
    {
      what: "the facade and image-registry and sandbox",
      connections: [
        ["facade", "image-registry"],
        ["facade", "sandbox"],
      ],
      fails: ["listImages", "createImage", "listRegistries", "listSandboxes", "provision", "wait", "monitor"],
      spares: ["signIn", "listTokens", "listWorkspaces", "createWorkspace", "listMembers"],
    },
    {
      what: "the processes and what few requests need",
      connections: [
        ["facade", "telemetry"],
        ["workspace", "identity"],
        ["image-registry", "workspace"],
        ["sandbox", "image-registry"],
        ["sandbox", "workspace"],
      ],
      fails: ["monitor", "listMembers", "addRegistry", "provision"],
      spares: [
        "signIn",
        "listTokens",
        "listWorkspaces",
        "createWorkspace",
        "listImages",
        "createImage",
        "listSandboxes",
      ],
    },
    {
      what: "the processes and what no request needs",
      connections: [
        ["sandbox", "telemetry"],
        ["telemetry", "workspace"],
        ["telemetry", "sandbox"],
        ["sandbox", "engine"],
        ["telemetry", "engine"],
        ...parts.map((part) => [part, "nats"] as const),
      ],
      fails: [],
      spares: all,
    },
    {
      what: "identity and MongoDB",
      connections: [["identity", "mongo"]],
      fails: ["signIn", "listTokens", "listWorkspaces", "listImages"],
      spares: ["describe"],
    },
    {
      what: "workspace and MongoDB",
      connections: [["workspace", "mongo"]],
      fails: ["listWorkspaces", "createWorkspace", "listMembers", "listImages"],
      spares: ["signIn", "listTokens"],
    },
    {
      what: "the other services and MongoDB",
      connections: [
        ["image-registry", "mongo"],
        ["sandbox", "mongo"],
        ["telemetry", "mongo"],
      ],
      fails: ["listImages", "createImage", "listSandboxes", "provision", "wait", "monitor"],
      spares: ["signIn", "listTokens", "listWorkspaces", "createWorkspace", "listMembers"],
    },
  ];

  const setAll = (proxies: readonly FaultProxy[], mode: FaultMode) =>
    Promise.all(proxies.map((proxy) => proxy.set(mode)));
  const inject = ({ connections }: Fault, mode: FaultMode) =>
    setAll(
      connections.map(([from, to]) => platform.faultProxy(from, to)),
      mode,
    );

  /** Sends them all at once. */
  async function send(names: readonly RequestName[]): Promise<{ name: RequestName; answer: Answer; ms: number }[]> {
    return Promise.all(
      names.map(async (name) => {
        const startedAt = performance.now();
        const answer = await requests[name]();
        return { name, answer, ms: performance.now() - startedAt };
      }),
    );
  }

  const failuresOf = async (names: readonly RequestName[]) =>
    (await send(names))
      .filter(({ answer }) => answer.status >= 300)
      .map(({ name, answer }) => `${name}: ${answer.status} ${answer.text}`);

  /** The dependencies that a process reports as unhealthy. */
  async function listUnhealthy(part: Part): Promise<string[]> {
    const response = await fetch(`${platform.replica(part, 0).adminUrl}/readyz`);
    const { ready, dependencies } = (await response.json()) as {
      ready: boolean;
      dependencies: Record<string, string>;
    };
    expect(ready).toBe(true);
    return Object.keys(dependencies).filter((name) => dependencies[name] !== "ok");
  }

  const shownAs: Partial<Record<Dependency, string>> = { mongo: "database", nats: "events", engine: "runtime" };
  /** An engine may take half a minute to answer before it counts as unreachable. */
  const expectedUnhealthy = ({ connections }: Fault, part: Part, mode: FaultMode) =>
    connections
      .filter(([from, to]) => from === part && !(to === "engine" && mode === "silent"))
      .map(([, to]) => shownAs[to] ?? to);

  describe.each(faults)("between $what", (fault) => {
    test("slow: every request is answered", async () => {
      await inject(fault, "slow");
      try {
        expect(await failuresOf(all)).toEqual([]);
      } finally {
        await inject(fault, "open");
      }
    });

    test.each(broken)("%s: requests that need them fail in time, all others succeed", async (mode) => {
      await inject(fault, mode);
      try {
        await delay(cachedMs);
        const [needed, failures] = await Promise.all([send(fault.fails), failuresOf(fault.spares)]);
        for (const { name, answer, ms } of needed) {
          expectFault(answer, "upstream_error");
          expect(ms, name).toBeLessThan(answeredMs);
        }
        expect(failures).toEqual([]);
        for (const part of new Set(fault.connections.map(([from]) => from))) {
          await expect
            .poll(() => listUnhealthy(part), { message: part })
            .toEqual(expect.arrayContaining(expectedUnhealthy(fault, part, mode)));
        }
      } finally {
        await inject(fault, "open");
      }
      await expect.poll(() => failuresOf(all)).toEqual([]);
      for (const part of parts) {
        await expect.poll(() => listUnhealthy(part), { message: part }).toEqual([]);
      }
    });
  });

  test.each(broken)("%s: a wait and a live stream end, and can be resumed afterwards", async (mode) => {
    const proxies = (["sandbox", "telemetry"] as const).map((service) => platform.faultProxy("facade", service));
    const waitedFor = await operator.provision(neverReadyId);
    const waiting = operator.post("/sandboxes/wait", { sandbox_id: waitedFor, timeout_seconds: 60 }, operator.as);
    const stream = openStream();
    await expect.poll(() => stream.lines.length).toBeGreaterThan(0);
    await setAll(proxies, mode);
    try {
      expectFault(await waiting, "upstream_error");
      await stream.ended;
    } finally {
      await setAll(proxies, "open");
    }
    const before = [...stream.lines];
    const resumed = openStream(before.at(-1)?.id);
    await expect.poll(() => resumed.lines.length).toBeGreaterThan(20);
    resumed.close();
    const numbers = [...before, ...resumed.lines].map(({ log }) => Number(log.replace("line ", "")));
    expect(numbers).toEqual(numbers.map((_, index) => (numbers[0] ?? 0) + index));
    expectStatus(await operator.delete(`/sandboxes/${waitedFor}`, operator.as), 204);
  });

  interface LiveStream {
    /** The lines received so far. */
    lines: readonly { id: string; log: string }[];
    /** Resolves when the facade ends it. */
    ended: Promise<void>;
    close(): void;
  }

  /** Follows the logs of the sandbox, after the line with this id if one is given. */
  function openStream(lastId?: string): LiveStream {
    const abort = new AbortController();
    const lines: { id: string; log: string }[] = [];
    const read = async () => {
      const url = `${platform.url}/sandbox/monitoring/${sandboxId}/stream?include=logs`;
      const response = await openEventStream(url, { ...operator.as, lastId, signal: abort.signal });
      expect(response.status).toBe(200);
      for await (const { id, event, data } of readEvents(response))
        if (event === "log") lines.push({ id, log: data.log });
    };
    const ended = read();
    ended.catch(() => {});
    return {
      ended,
      lines,
      close: () => abort.abort(),
    };
  }

  test.each(broken)("%s: events published while NATS could not be reached arrive", async (mode) => {
    const proxies = parts.map((part) => platform.faultProxy(part, "nats"));
    const { id } = expectStatus(await requests.createWorkspace(), 201);
    const inside = { ...operator.as, workspace: id };
    expectStatus(await operator.post("/sandbox-images", { name: "i", image: "busybox" }, inside), 201);
    await setAll(proxies, mode);
    try {
      expectStatus(await operator.delete(`/workspaces/${id}`, operator.as), 204);
      await delay(2_000);
    } finally {
      await setAll(proxies, "open");
    }
    const deletions = platform.database("workspace").collection<{ _id: string; completedAt?: Date }>("deletions");
    await expect.poll(async () => (await deletions.findOne({ _id: id }))?.completedAt).toBeInstanceOf(Date);
  });
});
