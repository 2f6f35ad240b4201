import { randomInt } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { buildImage, openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectStatus, uniqueName } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { listContainers, type Operator, openOperator, readRows } from "../platform/operator.ts";

const isAvailable = await requireServer("docker", async () => {
  await probeEngine();
  await probeRegistry();
});

/** What each service stores for a workspace. The parameter is the workspace's id. */
const kept: [service: string, table: string, condition: string][] = [
  ["workspace", "workspaces", "id = ?"],
  ["workspace", "members", "workspace_id = ?"],
  ["image-registry", "images", "workspace_id = ?"],
  ["image-registry", "registries", "workspace_id = ?"],
  ["sandbox", "sandboxes", "workspace_id = ?"],
  ["telemetry", "sandboxes", "workspace_id = ?"],
];

describe.runIf(isAvailable)("the deletion of a workspace", { timeout: 300_000 }, () => {
  const engine = openTestEngine();
  const credential = { username: "alice", password: "correct horse" };
  let closing: AsyncDisposableStack;
  let registry: TestRegistry;
  let platform: TestPlatform;
  let operator: Operator;
  let digest: string;

  beforeAll(async () => {
    closing = new AsyncDisposableStack();
    registry = closing.adopt(await startRegistry({ users: [credential] }), (each) => each.stop());
    const image = await buildImage(engine, {
      command: ["sh", "-c", "trap 'exit 0' TERM; echo hello; sleep 3600 & wait"],
    });
    digest = await registry.push(engine, image.id, "team/app", "1", credential);
    await image.remove();
    // The platform pulls it again, under a name of its own.
    closing.defer(() => engine.getImage(image.id).remove({ force: true }));
    platform = closing.adopt(await startPlatform({ settings: { SANDGATE_REGISTRY_ALLOW: registry.host } }), (each) =>
      each.stop(),
    );
    operator = await openOperator(platform);
  });
  afterAll(() => closing?.disposeAsync());

  /** A workspace with an image, its credential, and two sandboxes with logs and samples, one of which has ended. */
  async function fillWorkspace(): Promise<{ workspace: string; sandboxes: string[] }> {
    const { token } = operator.as;
    const { id: workspace } = expectStatus(await operator.post("/workspaces", { name: "doomed" }, { token }), 201);
    const as = { token, workspace };
    const added = await operator.post("/registries", { name: "private", url: registry.host, ...credential }, as);
    const registry_id = expectStatus(added, 201).id;
    const body = { name: uniqueName("app"), image: `${registry.host}/team/app:1`, registry_id, memory_mb: 256 };
    const image_id = expectStatus(await operator.post("/sandbox-images", body, as), 201).id;
    const sandboxes: string[] = [];
    for (const name of ["ended", "running"]) {
      const { id } = expectStatus(await operator.post("/sandboxes/provision", { image_id, name }, as), 201);
      expect(expectStatus(await operator.wait(id, as), 200)).toMatchObject({ image_digest: digest });
      sandboxes.push(id);
      await expect
        .poll(async () => {
          const { logs, metrics } = expectStatus(await operator.get(`/sandbox/monitoring/${id}`, as), 200);
          return [logs.length, metrics.length > 0];
        })
        .toEqual([1, true]);
    }
    await engine.getContainer(`sandgate-${sandboxes[0]}`).kill();
    return { workspace, sandboxes };
  }

  const count = (service: string, table: string, condition: string, ...parameters: string[]) =>
    Number(readRows(platform, service, `SELECT count(*) AS n FROM ${table} WHERE ${condition}`, ...parameters)[0]?.n);
  const countKept = (workspace: string, sandboxes: readonly string[]) => [
    ...kept.map(([service, table, condition]) => [service, table, count(service, table, condition, workspace)]),
    ...["sources", "chunks"].map((table) => [
      "telemetry",
      table,
      count("telemetry", table, "sandbox_id IN (?, ?)", ...sandboxes),
    ]),
  ];

  test("survives crashes: everything is deleted, and the record says so for every service", async () => {
    const { workspace, sandboxes } = await fillWorkspace();
    for (const [service, table, rows] of countKept(workspace, sandboxes)) {
      expect(rows, `${service}.${table}`).toBeGreaterThan(0);
    }
    const { token } = operator.as;
    expectStatus(await operator.delete(`/workspaces/${workspace}`, { token }), 204);
    for (const crashAfterMs of [randomInt(100), 200 + randomInt(500)]) {
      await delay(crashAfterMs);
      await platform.kill();
      await platform.start();
      expectError(await operator.get(`/workspaces/${workspace}`, { token }), "workspace_not_found");
    }

    const openPurges = () => {
      const [record] = readRows(platform, "workspace", "SELECT * FROM deletions WHERE workspace_id = ?", workspace);
      const purges = readRows(
        platform,
        "workspace",
        "SELECT service, purged_at FROM deletion_purges WHERE workspace_id = ? ORDER BY service",
        workspace,
      );
      return [record?.completed_at !== null, ...purges.map(({ service, purged_at }) => [service, purged_at !== null])];
    };
    await expect.poll(openPurges).toEqual([true, ["image-registry", true], ["sandbox", true], ["telemetry", true]]);
    for (const [service, table, rows] of countKept(workspace, sandboxes)) {
      expect(rows, `${service}.${table}`).toBe(0);
    }
    for (const sandboxId of sandboxes) expect(await listContainers(platform, sandboxId)).toEqual([]);
  });
});
