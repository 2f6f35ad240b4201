import { randomInt } from "node:crypto";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createClient as createRpcClient } from "@connectrpc/connect";
import { credentials, Client as GrpcClient, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { createLogger } from "@sandgate/kit/base/logging";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import { createRemoteTransport } from "@sandgate/kit/rpc/clients";
import { asService } from "@sandgate/kit/rpc/context";
import { createInternalKeys } from "@sandgate/kit/rpc/internal-auth";
import { openTokenSigner } from "@sandgate/kit/rpc/internal-keys";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { buildImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  type Answer,
  type Client,
  createClient,
  expectError,
  expectStatus,
  uniqueName,
} from "../conformance/client.ts";
import { openEventStream, readEvents } from "../conformance/event-stream.ts";
import { type DistributedPlatform, requireDistributed, startDistributed } from "../platform/distributed/platform.ts";
import type { Replica } from "../platform/distributed/replica.ts";
import { unlimitedSandboxes } from "../platform/limits.ts";
import { lineWriter } from "../platform/line-writer.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

const isAvailable = (await requireDistributed()) && (await requireServer("docker", probeEngine));

describe.runIf(isAvailable)("several replicas of each process", { timeout: 600_000 }, () => {
  const engine = openTestEngine();
  let platform: DistributedPlatform;
  let facades: Client[];
  let operator: Operator;
  let images: TestImage[];
  let idleImageId: string;
  let gatedImageId: string;
  /** Numbers its lines, and marks the last. */
  let talkingImageId: string;

  beforeAll(async () => {
    images = await Promise.all([
      buildImage(engine, { command: ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"] }),
      buildImage(engine, {
        command: ["sh", "-c", "while [ ! -e /go ]; do sleep 0.1; done; echo went; exec httpd -f -p 8080 -h /www"],
        files: { "/www/index.html": "here" },
      }),
      buildImage(engine, {
        command: ["sh", "-c", lineWriter({ everySeconds: 0.1, lastLine: "last" })],
      }),
    ]);
    platform = await startDistributed({
      replicas: { facade: 3 },
      settings: unlimitedSandboxes,
    });
    facades = [0, 1, 2].map((index) => createClient(platform.replica("facade", index).url));
    operator = await openOperator(platform);
    [idleImageId = "", gatedImageId = "", talkingImageId = ""] = await Promise.all([
      operator.registerImage(images[0]?.reference ?? ""),
      operator.registerImage(images[1]?.reference ?? "", { readiness_port: 8080 }),
      operator.registerImage(images[2]?.reference ?? ""),
    ]);
  });
  afterAll(async () => {
    await platform?.stop();
    await Promise.all(images.map((image) => image.remove()));
  });

  /** Any facade. */
  const someFacade = (): Client => facades[randomInt(facades.length)] ?? operator;

  /** Of each shard, the replica that has its lease now. */
  async function shardHolders(): Promise<string[]> {
    const leases = await platform
      .database("sandbox")
      .collection<{ _id: string; holder: string }>("kit_leases")
      .find({ _id: /^sandbox\.shard\./, $expr: { $gt: ["$expiresAt", "$$NOW"] } })
      .toArray();
    return leases.map(({ holder }) => holder);
  }

  async function listAll(path: string, field: string, options: object): Promise<Record<string, string>[]> {
    const found: Record<string, string>[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const page = expectStatus(await someFacade().get(`${path}?limit=500&cursor=${cursor}`, options), 200);
      found.push(...page[field]);
      cursor = page.next_cursor;
    }
    return found;
  }

  describe("internal calls", () => {
    const logger = createLogger({ service: "test", level: "silent" });
    const methods: [service: ServiceName, method: string][] = [
      ["identity", "sandgate.identity.v1.IdentityService/BatchGetUsers"],
      ["workspace", "sandgate.workspace.v1.WorkspaceService/GetMembership"],
      ["image-registry", "sandgate.imageregistry.v1.ImageRegistryService/ListImages"],
      ["sandbox", "sandgate.sandbox.v1.SandboxService/GetInstallation"],
      ["telemetry", "sandgate.telemetry.v1.TelemetryService/QueryTelemetry"],
    ];

    /** The gRPC status that a call with an empty message ends with. */
    async function callOver(service: ServiceName, method: string, authorization?: string): Promise<status> {
      const client = new GrpcClient(new URL(platform.replica(service, 0).url).host, credentials.createInsecure());
      const metadata = new Metadata();
      if (authorization !== undefined) metadata.set("authorization", authorization);
      try {
        return await new Promise((resolve) => {
          const done = (error: ServiceError | null) => resolve(error?.code ?? status.OK);
          client.makeUnaryRequest(`/${method}`, Buffer.from, (bytes) => bytes, Buffer.alloc(0), metadata, done);
        });
      } finally {
        client.close();
      }
    }
    const signerOf = (caller: string) =>
      openTokenSigner({ caller, file: join(platform.keysFolder, `${caller}.jwk.json`), logger });

    test.each(methods)("%s refuses those without a valid token", async (service, method) => {
      const strangers = await createInternalKeys(["facade"]);
      const signer = await signerOf("facade");
      const other = serviceNames.find((name) => name !== service) ?? "";
      const headers = [
        undefined,
        "Bearer nonsense",
        `Bearer ${operator.as.token}`,
        await strangers.signer("facade").mint(service, { passedOn: false }),
        await signer.mint(other, { passedOn: false }),
      ];
      for (const header of headers) expect(await callOver(service, method, header)).toBe(status.PERMISSION_DENIED);
      signer.close();
    });

    test("a valid token is enough only for a caller with access", async () => {
      const path = "sandgate.sandbox.v1.SandboxService/GetInstallation";
      for (const [caller, expected] of [
        ["telemetry", status.OK],
        ["identity", status.PERMISSION_DENIED],
      ] as const) {
        const signer = await signerOf(caller);
        expect(await callOver("sandbox", path, await signer.mint("sandbox", { passedOn: false })), caller).toBe(
          expected,
        );
        signer.close();
      }
    });
  });

  // Retried, since a machine that stands still at the wrong moment delays a signal too.
  test("waits and live tails learn of a change on whichever replica they run", { retry: 2 }, async () => {
    const sandboxId = await operator.provision(gatedImageId);
    onTestFinished(async () => {
      expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
    });
    const container = engine.getContainer(`sandgate-${sandboxId}`);
    await expect
      .poll(() =>
        container.inspect().then(
          ({ State }) => State.Running,
          () => false,
        ),
      )
      .toBe(true);

    const startedAt = Date.now();
    // Two from each facade, which calls its replicas in turn.
    const waits = [...facades, ...facades].map(async (facade) => {
      const body = { sandbox_id: sandboxId, timeout_seconds: 100 };
      const answer = await facade.post("/sandboxes/wait", body, operator.as);
      return { answer, at: Date.now() };
    });
    const tails = [...facades, ...facades].map((facade) => readTailUntil(facade, sandboxId, "went"));
    // By now all of them are open, and a wait, which polls every 5 s, can be woken only by a signal for the next 4 s.
    await delay(6_000);
    const exec = await container.exec({ Cmd: ["touch", "/go"] });
    await exec.start({});
    for (const { answer, at } of await Promise.all(waits)) {
      expect(expectStatus(answer, 200)).toMatchObject({ id: sandboxId, state: "ready" });
      expect(at - startedAt).toBeLessThan(9_500);
    }
    await Promise.all(tails);
  });

  test("a wait whose replica is killed is answered by another, in time", async () => {
    const sandboxId = await operator.provision(gatedImageId);
    // One from each facade and another, so that some are at each replica.
    const waits = [...facades, ...facades].map((facade) =>
      facade.post("/sandboxes/wait", { sandbox_id: sandboxId, timeout_seconds: 5 }, operator.as),
    );
    await delay(1_000);
    await platform.replica("sandbox", 0).kill();
    for (const answer of await Promise.all(waits)) expectError(answer, "sandbox_not_ready");
    await platform.replica("sandbox", 0).start();
    expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
  });

  /** Follows the live stream until a log line is this. Rejects when it ends before. */
  async function readTailUntil(facade: Client, sandboxId: string, line: string): Promise<void> {
    const response = await openEventStream(`${facade.url}/sandbox/monitoring/${sandboxId}/stream`, operator.as);
    expect(response.status).toBe(200);
    const seen: string[] = [];
    for await (const { data } of readEvents(response)) {
      if (data.log === line) return;
      seen.push(data.log);
    }
    throw new Error(`the stream ended: ${seen.join()}`);
  }

  test("the work of a sandbox replica that was killed is taken over", async () => {
    await expect.poll(async () => new Set(await shardHolders()).size).toBe(2);
    // With an idempotency key, so that a call which the killed replica leaves unanswered is repeated.
    const provision = () =>
      someFacade().post(
        "/sandboxes/provision",
        { image_id: idleImageId },
        { ...operator.as, headers: { "idempotency-key": uniqueName("taken") } },
      );
    const before = await Promise.all([1, 2, 3, 4].map(provision));
    await platform.replica("sandbox", 0).kill();
    const taken = expect
      .poll(async () => [(await shardHolders()).length, new Set(await shardHolders()).size])
      .toEqual([64, 1]);
    const after = await Promise.all([1, 2, 3, 4].map(provision));
    await taken;
    const sandboxIds = [...before, ...after].map((answer) => expectStatus(answer, 201).id);
    for (const sandboxId of sandboxIds) {
      const ready = await someFacade().post("/sandboxes/wait", { sandbox_id: sandboxId }, operator.as);
      expect(expectStatus(ready, 200)).toMatchObject({ id: sandboxId, state: "ready" });
      expect(await platform.containers(sandboxId)).toHaveLength(1);
    }
    await platform.replica("sandbox", 0).start();
    await expect.poll(async () => new Set(await shardHolders()).size).toBe(2);
    for (const id of sandboxIds) expectStatus(await someFacade().delete(`/sandboxes/${id}`, operator.as), 204);
    await expect.poll(() => platform.containers()).toEqual([]);
  });

  test("a facade shows the state of each service and of its dependencies", async () => {
    const names = [
      "consumers",
      "events",
      ...serviceNames.flatMap((service) => [service, `${service}.database`]),
      ...[
        "identity.mail",
        "sandbox.containers",
        "sandbox.disk",
        "sandbox.pulls",
        "sandbox.runtime",
        "telemetry.runtime",
      ],
    ];
    const expected = Object.fromEntries(names.map((name) => [name, "ok"]));
    await expect.poll(async () => expectStatus(await someFacade().get("/readyz"), 200).dependencies).toEqual(expected);
  });

  describe("telemetry", () => {
    /** How many containers a replica reads now. */
    async function countFollowed({ adminUrl }: Replica): Promise<number> {
      const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
      return Number(/^sandgate_telemetry_followed_containers (\d+)$/m.exec(metrics)?.[1]);
    }
    async function readLines(sandboxId: string): Promise<string[]> {
      const { logs } = await operator.monitor(sandboxId, "&include=logs");
      return logs.map((entry: { log: string }) => entry.log);
    }
    /** Deletes it and expects every line that it wrote, once and in order. */
    async function expectAllLines(sandboxId: string): Promise<void> {
      expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
      await expect.poll(() => platform.containers(sandboxId)).toEqual([]);
      const lines = await readLines(sandboxId);
      expect(lines).toEqual([...lines.slice(1).map((_, index) => `line ${index + 1}`), "last"]);
    }
    const replicas = () => [platform.replica("telemetry", 0), platform.replica("telemetry", 1)];

    test("each container is read by one replica; when that is killed, another goes on", async () => {
      const sandboxIds = await Promise.all([1, 2, 3, 4].map(() => operator.provisionReady(talkingImageId)));
      const counts = async () => Promise.all(replicas().map(countFollowed));
      await expect.poll(async () => (await counts()).reduce((sum, count) => sum + count)).toBe(4);
      for (const sandboxId of sandboxIds) {
        await expect.poll(async () => (await readLines(sandboxId)).length).toBeGreaterThan(0);
      }
      const [one = 0, other = 0] = await counts();
      const [reader, survivor] = one >= other ? replicas() : replicas().reverse();
      await reader?.kill();
      const stored = await Promise.all(sandboxIds.map(readLines));
      await expect
        .poll(async () => {
          const now = await Promise.all(sandboxIds.map(readLines));
          return now.every((lines, index) => lines.length > (stored[index]?.length ?? 0));
        })
        .toBe(true);
      expect(survivor && (await countFollowed(survivor))).toBe(4);
      // One ends while there is a single replica, the others when there are two again.
      const [first = "", ...others] = sandboxIds;
      await expectAllLines(first);
      await reader?.start();
      await Promise.all(others.map(expectAllLines));
    });

    test("every replica knows when a log is stored completely", async () => {
      const sandboxId = await operator.provisionReady(talkingImageId);
      const logger = createLogger({ service: "test", level: "silent" });
      const file = join(platform.keysFolder, "sandbox.jwk.json");
      const signer = await openTokenSigner({ caller: "sandbox", file, logger });
      const drained = replicas().map(({ url }) => {
        const transport = createRemoteTransport({ url, signer, audience: "telemetry" });
        const request = { sandboxId, timeoutSeconds: 60 };
        return createRpcClient(TelemetryService, transport).awaitDrained(request, asService({ timeoutMs: 65_000 }));
      });
      await expectAllLines(sandboxId);
      for (const each of drained) expect(await each).toMatchObject({ drained: true });
      signer.close();
    });
  });

  describe("a create with an Idempotency-Key", () => {
    const kinds: [service: ServiceName, path: string, field: string, plural: string, body: () => object][] = [
      ["workspace", "/workspaces", "name", "workspaces", () => ({})],
      ["image-registry", "/sandbox-images", "name", "images", () => ({ image: "busybox" })],
      ["identity", "/api-tokens/", "description", "api_tokens", () => ({})],
      ["sandbox", "/sandboxes/provision", "name", "sandboxes", () => ({ image_id: idleImageId })],
    ];

    test.each(kinds)(
      "happens once at %s, asked of three facades and after a kill",
      async (service, path, field, plural, body) => {
        const options = service === "identity" ? { token: await operator.openSession() } : operator.as;
        const prefix = uniqueName("once");
        const sender = (name: string) => (facade: Client) =>
          facade.post(path, { ...body(), [field]: name }, { ...options, headers: { "idempotency-key": name } });

        const atOnce = (await Promise.all(facades.map(sender(`${prefix}-0`)))).map((answer) =>
          expectStatus(answer, 201),
        );
        for (const answer of atOnce) expect(answer).toEqual(atOnce[0]);

        for (const round of [1, 2]) {
          const send = sender(`${prefix}-${round}`);
          const [first = operator, ...others] = facades;
          const pending = send(first);
          await delay(randomInt(40));
          const replica = platform.replica(service, round % 2);
          await replica.kill();
          const answers = await Promise.all([pending, ...others.map(send)]);
          for (const answer of answers) expect(expectStatus(answer, 201)).toEqual(answers[0]?.body);
          await replica.start();
        }
        const listed = await listAll(path.replace("/provision", ""), plural, options);
        const mine = listed.map((record) => record[field] ?? "").filter((name) => name.startsWith(prefix));
        expect(mine.sort()).toEqual([0, 1, 2].map((round) => `${prefix}-${round}`));
      },
    );
  });

  describe("SIGTERM", () => {
    /** Requests of every kind to all facades, three at a time, until stopped. */
    function startLoad() {
      const failures: string[] = [];
      let answered = 0;
      let going = true;
      const kinds: ((facade: Client) => Promise<Answer>)[] = [
        (facade) => facade.get("/workspaces", operator.as),
        (facade) => facade.get("/sandboxes", operator.as),
        (facade) => facade.get("/sandbox-images", operator.as),
        (facade) => facade.post("/workspaces", { name: "load" }, operator.as),
        (facade) => facade.post("/sandbox-images", { name: "load", image: "busybox" }, operator.as),
        (facade) => facade.get("/auth/nowhere", operator.as),
      ];
      const callers = [0, 1, 2].map(async (caller) => {
        for (let turn = caller; going; turn++) {
          const send = kinds[turn % kinds.length];
          const answer = await send?.(someFacade());
          if (!answer || answer.status >= 500) failures.push(`kind ${turn % kinds.length}: ${answer?.text}`);
          answered++;
        }
      });
      return {
        failures,
        answered: () => answered,
        async stop() {
          going = false;
          await Promise.all(callers);
        },
      };
    }

    test("a replica of each service is restarted, one after the other, and no request fails", async () => {
      const load = startLoad();
      try {
        for (const service of serviceNames) {
          const replica = platform.replica(service, 0);
          const before = load.answered();
          await expect.poll(load.answered).toBeGreaterThan(before + 20);
          expect(await replica.terminate(), replica.process.output().slice(-2_000)).toBe(0);
          await replica.start();
        }
      } finally {
        await load.stop();
      }
      expect(load.failures).toEqual([]);
    });

    test("a facade answers the requests it has accepted, ends its streams and exits", async () => {
      const sandboxId = await operator.provision(gatedImageId);
      const replica = platform.replica("facade", 2);
      const facade = createClient(replica.url);
      const waits = [1, 2, 3].map(() =>
        facade.post("/sandboxes/wait", { sandbox_id: sandboxId, timeout_seconds: 120 }, operator.as),
      );
      const stream = await fetch(`${replica.url}/sandbox/monitoring/${sandboxId}/stream`, {
        headers: { authorization: `Bearer ${operator.as.token}`, "x-workspace-id": operator.as.workspace },
      });
      await delay(2_000);
      const ended = stream.text();
      const exitCode = replica.terminate();
      for (const answer of await Promise.all(waits)) expectError(answer, "sandbox_not_ready");
      await ended;
      expect(await exitCode).toBe(0);
      await replica.start();
      expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
    });
  });

  test("all processes, MongoDB and NATS are started in any order after a power cut", async () => {
    const [server] = platform.mongo.members;
    await Promise.all([...platform.replicas.map((replica) => replica.kill()), platform.nats.kill(), server?.kill()]);
    const shuffled = platform.replicas.map((replica) => ({ replica, at: Math.random() })).sort((a, b) => a.at - b.at);
    const starts = Promise.all(shuffled.map(({ replica }) => replica.start()));
    starts.catch(() => {});
    await delay(3_000);
    await platform.nats.start();
    await delay(1_000);
    await server?.start();
    await starts;
    const sandboxId = await operator.provisionReady(idleImageId);
    expect(await platform.containers(sandboxId)).toHaveLength(1);
    expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
  });

  test("open waits of a token are counted over three facades", async () => {
    const session = { token: await operator.openSession() };
    const created = await someFacade().post("/api-tokens/", { description: "waits" }, session);
    const { token } = expectStatus(created, 201);
    const sandboxId = await operator.provision(gatedImageId);
    const body = { sandbox_id: sandboxId, timeout_seconds: 120 };
    let refused = 0;
    const waits = facades.flatMap((facade) =>
      Array.from({ length: 40 }, async () => {
        const answer = await facade.post("/sandboxes/wait", body, { ...operator.as, token });
        if (answer.status === 429) refused += 1;
        return answer;
      }),
    );
    // Of 120 a hundred are let in, but for the few that facades hold in advance.
    await expect.poll(() => refused).toBeGreaterThanOrEqual(20);
    expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
    const statuses = (await Promise.all(waits)).map(({ status }) => status);
    expect(new Set(statuses)).toEqual(new Set([409, 429]));
    expect(refused).toBeLessThanOrEqual(30);
  });

  test("rate limits of a token and of its user hold over three facades, within a tenth", async () => {
    const limit = 60;
    await Promise.all(
      [0, 1, 2].map(async (index) => {
        const facade = platform.replica("facade", index);
        await facade.kill();
        await facade.start({ SANDGATE_RATE_LIMIT: String(limit) });
      }),
    );
    const session = { token: await operator.openSession() };
    const tokens: string[] = [];
    for (const description of ["first", "second", "third"]) {
      tokens.push(expectStatus(await someFacade().post("/api-tokens/", { description }, session), 201).token);
    }
    const allowed = await Promise.all(
      tokens.map(async (token) => {
        let answered = 0;
        await Promise.all(
          facades.map(async (facade) => {
            for (let refused = 0; refused < 5; ) {
              const answer = await facade.get("/workspaces", { token });
              if (answer.status === 429) refused++;
              else {
                expectStatus(answer, 200);
                answered++;
              }
            }
          }),
        );
        return answered;
      }),
    );
    expect(Math.max(...allowed)).toBeLessThanOrEqual(limit * 1.1);
    const ofUser = allowed.reduce((sum, each) => sum + each);
    expect(ofUser).toBeGreaterThanOrEqual(2 * limit * 0.9);
    expect(ofUser).toBeLessThanOrEqual(2 * limit * 1.1);
  });
});
