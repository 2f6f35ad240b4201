import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { asFacade, asService } from "@sandgate/kit/rpc/context";
import { removeHostObjects } from "@sandgate/test/platform/host-objects";
import {
  buildImage,
  engineAddress,
  openTestEngine,
  probeEngine,
  runSandboxContainer,
  type TestImage,
} from "@sandgate/test-support/images";
import { probeMongo, type SharedMongo, type TestDatabase, useMongo } from "@sandgate/test-support/mongo";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { openTestService, type TestService } from "./service.fixture.ts";

const logger = createLogger({ service: "telemetry", level: process.env.SANDGATE_LOG_LEVEL ?? "silent" });
const isAvailable = (await requireServer("mongo", probeMongo)) && (await requireServer("docker", probeEngine));

describe.runIf(isAvailable)("several replicas on one database", () => {
  const engine = openTestEngine();
  let mongo: SharedMongo;
  let image: TestImage;
  let database: TestDatabase;
  let folder: string;
  let installationId: string;
  let workspaceId: string;
  let bus: EventBus;
  let replicas: TestService[];

  beforeAll(async () => {
    [mongo, image] = await Promise.all([useMongo(), buildImage(engine, { command: ["sleep", "3600"] })]);
  });
  afterAll(async () => {
    await Promise.all([mongo.stop(), image.remove()]);
  });

  test.beforeEach(async ({ folder: own }) => {
    folder = own;
    [installationId, workspaceId, replicas] = [newId(), newId(), []];
    database = await mongo.createDatabase();
    // A bus in this process is one for all replicas.
    bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  });
  afterEach(async () => {
    await Promise.all(replicas.map((replica) => replica.close()));
    await bus.close();
    await removeHostObjects(installationId);
    await database.drop();
  });

  async function openReplica(): Promise<TestService> {
    const replica = await openTestService({
      runtime: engineAddress,
      installationId,
      database: { kind: "mongodb", url: database.url, name: database.name },
      bus,
      keysFile: join(folder, "keys.json"),
      logger,
      workspaceOf: () => workspaceId,
    });
    replicas.push(replica);
    return replica;
  }

  /** Runs a container for each of the random ids, of which each replica has some as good as certainly. */
  async function runMany(count: number, script: string): Promise<string[]> {
    const sandboxIds = Array.from({ length: count }, () => newId());
    for (const sandboxId of sandboxIds) {
      await runSandboxContainer(engine, { image, script, sandboxId, workspaceId, installationId });
    }
    return sandboxIds;
  }

  /** How many containers each replica reads. */
  const countFollowed = () =>
    Promise.all(
      replicas.map(async ({ metrics }) => {
        const gauge = await metrics.getSingleMetric("sandgate_telemetry_followed_containers")?.get();
        return gauge?.values[0]?.value ?? 0;
      }),
    );

  async function readLines({ as }: TestService, sandboxId: string): Promise<string[]> {
    const user = { id: "u1", credential: "session", credentialId: "s1", operator: false } as const;
    const call = asFacade({ requestId: newId(), user: { ...user, workspaceId, role: "member" } });
    const { logs } = await as.facade.queryTelemetry({ sandboxId, includeLogs: true, limit: 10_000 }, call);
    return logs.map(({ log }) => log);
  }
  const awaitDrained = async ({ as }: TestService, sandboxId: string): Promise<boolean> => {
    const request = { sandboxId, timeoutSeconds: 60 };
    return (await as.sandbox.awaitDrained(request, asService({ timeoutMs: 65_000 }))).drained;
  };

  test("each container is collected by one of them, even as they come and go, and any can say when it is drained", async () => {
    const count = 400;
    const first = await openReplica();
    const sandboxIds = await runMany(8, `i=0; while [ $i -lt ${count} ]; do echo "$i"; i=$((i+1)); sleep 0.05; done`);
    await until(async () => expect((await countFollowed())[0]).toBe(8));
    const second = await openReplica();
    await until(async () => {
      const [one = 0, other = 0] = await countFollowed();
      expect(other).toBeGreaterThan(0);
      expect(one + other).toBe(8);
    });

    // Asked now, while they run, each replica about what the other collects too.
    const drained = sandboxIds.map((sandboxId) => awaitDrained(second, sandboxId));
    await first.close();
    replicas = [second];
    await until(async () => expect((await countFollowed())[0]).toBe(8));
    const third = await openReplica();
    drained.push(...sandboxIds.map((sandboxId) => awaitDrained(third, sandboxId)));
    expect(new Set(await Promise.all(drained))).toEqual(new Set([true]));
    const expected = Array.from({ length: count }, (_, i) => `${i}`);
    for (const sandboxId of sandboxIds) expect(await readLines(third, sandboxId)).toEqual(expected);
  });
});
