import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Answer, expectStatus, uniqueName } from "../conformance/client.ts";
import {
  type Dependency,
  type DistributedPlatform,
  type Part,
  parts,
  requireDistributed,
  single,
  startDistributed,
} from "../support/distributed.ts";
import type { EdgeMode } from "../support/edge.ts";
import { buildImage, openTestEngine, probeEngine, type TestImage } from "../support/images.ts";
import { type Operator, openOperator } from "../support/operator.ts";
import { probeRegistry, startRegistry, type TestRegistry } from "../support/registry.ts";
import { requireServer } from "../support/require.ts";
import { expectFault } from "./faults.ts";

const isAvailable =
  (await requireDistributed()) &&
  (await requireServer("docker", probeEngine)) &&
  (await requireServer("registry", probeRegistry));

/** A call's deadline, the 2 s that a facade tries to reach the count of requests, and the time that it takes for the rest. */
const answeredMs = 15_000;
/** What a facade knows of a credential or a membership is at most that old. */
const rememberedMs = 1_100;
const broken = ["silent", "down", "reset"] as const;

const writer = `
trap 'exit 0' TERM
i=0
while true; do i=$((i + 1)); echo "line $i"; sleep 0.2; done
`;

describe.runIf(isAvailable)("the networks between the processes", () => {
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
    image = await buildImage(openTestEngine(), { command: ["/bin/sh", "/run"], files: { "/run": writer } });
    platform = await startDistributed({
      replicas: single,
      edges: true,
      settings: {
        SANDGATE_REGISTRY_ALLOW: registry.host,
        SANDGATE_WORKSPACE_MAX_SANDBOXES: "0",
        SANDGATE_RATE_LIMIT: "100000",
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
    edges: (readonly [from: Part, to: Dependency])[];
    /** What can't be done meanwhile. */
    needs: RequestName[];
    /** What goes on. */
    spares: RequestName[];
  }
  const faults: Fault[] = [
    {
      what: "the facade and identity",
      edges: [["facade", "identity"]],
      needs: ["signIn", "listTokens", "listWorkspaces", "listImages", "listSandboxes"],
      spares: ["describe"],
    },
    {
      what: "the facade and workspace",
      edges: [["facade", "workspace"]],
      needs: ["listWorkspaces", "createWorkspace", "listImages", "listSandboxes"],
      spares: ["signIn", "listTokens"],
    },
    {
      what: "the facade and image-registry and sandbox",
      edges: [
        ["facade", "image-registry"],
        ["facade", "sandbox"],
      ],
      needs: ["listImages", "createImage", "listRegistries", "listSandboxes", "provision", "wait", "monitor"],
      spares: ["signIn", "listTokens", "listWorkspaces", "createWorkspace", "listMembers"],
    },
    {
      what: "the processes and what few requests need",
      edges: [
        ["facade", "telemetry"],
        ["workspace", "identity"],
        ["image-registry", "workspace"],
        ["sandbox", "image-registry"],
      ],
      needs: ["monitor", "listMembers", "addRegistry", "provision"],
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
      edges: [
        ["sandbox", "workspace"],
        ["sandbox", "telemetry"],
        ["telemetry", "workspace"],
        ["telemetry", "sandbox"],
        ["sandbox", "engine"],
        ["telemetry", "engine"],
        ...parts.map((part) => [part, "nats"] as const),
      ],
      needs: [],
      spares: all,
    },
    {
      what: "identity and MongoDB",
      edges: [["identity", "mongo"]],
      needs: ["signIn", "listTokens", "listWorkspaces", "listImages"],
      spares: ["describe"],
    },
    {
      what: "workspace and MongoDB",
      edges: [["workspace", "mongo"]],
      needs: ["listWorkspaces", "createWorkspace", "listMembers", "listImages"],
      spares: ["signIn", "listTokens"],
    },
    {
      what: "the other services and MongoDB",
      edges: [
        ["image-registry", "mongo"],
        ["sandbox", "mongo"],
        ["telemetry", "mongo"],
      ],
      needs: ["listImages", "createImage", "listSandboxes", "provision", "wait", "monitor"],
      spares: ["signIn", "listTokens", "listWorkspaces", "createWorkspace", "listMembers"],
    },
  ];

  async function setEdges({ edges }: Fault, mode: EdgeMode): Promise<void> {
    await Promise.all(edges.map(([from, to]) => platform.edge(from, to).set(mode)));
  }

  /** Sends them all at once, and answers the name of each with what came of it. */
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

  /** What a process says of the things it depends on that are not in order. */
  async function listTroubles(part: Part): Promise<string[]> {
    const response = await fetch(`${platform.replica(part, 0).adminUrl}/readyz`);
    const { ready, dependencies } = (await response.json()) as {
      ready: boolean;
      dependencies: Record<string, string>;
    };
    expect(ready).toBe(true);
    return Object.keys(dependencies).filter((name) => dependencies[name] !== "ok");
  }

  const shownAs: Partial<Record<Dependency, string>> = { mongo: "database", nats: "events", engine: "runtime" };
  /** An engine may take half a minute for an answer before it counts as away. */
  const expectedTroubles = ({ edges }: Fault, part: Part, mode: EdgeMode) =>
    edges
      .filter(([from, to]) => from === part && !(to === "engine" && mode === "silent"))
      .map(([, to]) => shownAs[to] ?? to);

  describe.each(faults)("between $what", (fault) => {
    test("slow ones serve every request", async () => {
      await setEdges(fault, "slow");
      try {
        expect(await failuresOf(all)).toEqual([]);
      } finally {
        await setEdges(fault, "open");
      }
    });

    test.each(broken)("%s ones fail what needs them in time and nothing else", async (mode) => {
      await setEdges(fault, mode);
      try {
        await delay(rememberedMs);
        const [needed, failures] = await Promise.all([send(fault.needs), failuresOf(fault.spares)]);
        for (const { name, answer, ms } of needed) {
          expectFault(answer, "upstream_error");
          expect(ms, name).toBeLessThan(answeredMs);
        }
        expect(failures).toEqual([]);
        for (const part of new Set(fault.edges.map(([from]) => from))) {
          await expect
            .poll(() => listTroubles(part), { message: part })
            .toEqual(expect.arrayContaining(expectedTroubles(fault, part, mode)));
        }
      } finally {
        await setEdges(fault, "open");
      }
      await expect.poll(() => failuresOf(all)).toEqual([]);
      for (const part of parts) {
        await expect.poll(() => listTroubles(part), { message: part }).toEqual([]);
      }
    });
  });

  test.each(broken)("a wait and a live stream that a network cuts off (%s) end, and go on after it", async (mode) => {
    const edges = (["sandbox", "telemetry"] as const).map((service) => platform.edge("facade", service));
    const waitedFor = await operator.provision(neverReadyId);
    const waiting = operator.post("/sandboxes/wait", { sandbox_id: waitedFor, timeout_seconds: 60 }, operator.as);
    const stream = openStream();
    await expect.poll(() => stream.lines().length).toBeGreaterThan(0);
    await Promise.all(edges.map((edge) => edge.set(mode)));
    try {
      expectFault(await waiting, "upstream_error");
      await stream.ended;
    } finally {
      await Promise.all(edges.map((edge) => edge.set("open")));
    }
    const before = stream.lines();
    const resumed = openStream(before.at(-1)?.id);
    await expect.poll(() => resumed.lines().length).toBeGreaterThan(20);
    resumed.close();
    const numbers = [...before, ...resumed.lines()].map(({ log }) => Number(log.replace("line ", "")));
    expect(numbers).toEqual(numbers.map((_, index) => (numbers[0] ?? 0) + index));
    expectStatus(await operator.delete(`/sandboxes/${waitedFor}`, operator.as), 204);
  });

  interface LiveStream {
    /** What has come so far. */
    lines(): { id: string; log: string }[];
    /** Resolves when the facade ends it. */
    ended: Promise<void>;
    close(): void;
  }

  /** Follows the logs of the sandbox, from a line on if its id is given. */
  function openStream(lastId = ""): LiveStream {
    const abort = new AbortController();
    let text = "";
    const { token, workspace } = operator.as;
    const read = async () => {
      const response = await fetch(`${platform.url}/sandbox/monitoring/${sandboxId}/stream?include=logs`, {
        headers: { authorization: `Bearer ${token}`, "x-workspace-id": workspace, "last-event-id": lastId },
        signal: abort.signal,
      });
      expect(response.status).toBe(200);
      for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) text += chunk;
    };
    const ended = read();
    ended.catch(() => {});
    return {
      ended,
      lines: () =>
        [...text.matchAll(/^id: (.+)\nevent: log\ndata: (.+)\n\n/gm)].map(([, id = "", data = ""]) => ({
          id,
          log: (JSON.parse(data) as { log: string }).log,
        })),
      close: () => abort.abort(),
    };
  }

  test.each(broken)("events that were made while NATS was %s arrive", async (mode) => {
    const edges = parts.map((part) => platform.edge(part, "nats"));
    const { id } = expectStatus(await requests.createWorkspace(), 201);
    const inside = { ...operator.as, workspace: id };
    expectStatus(await operator.post("/sandbox-images", { name: "i", image: "busybox" }, inside), 201);
    await Promise.all(edges.map((edge) => edge.set(mode)));
    try {
      expectStatus(await operator.delete(`/workspaces/${id}`, operator.as), 204);
      await delay(2_000);
    } finally {
      await Promise.all(edges.map((edge) => edge.set("open")));
    }
    const deletions = platform.database("workspace").collection<{ _id: string; completedAt?: Date }>("deletions");
    await expect.poll(async () => (await deletions.findOne({ _id: id }))?.completedAt).toBeInstanceOf(Date);
  });
});
