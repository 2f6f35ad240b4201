import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, expectStatus, uniqueName } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { expectFault, linesOf } from "./faults.ts";

const execute = promisify(execFile);

describe("internal_error, when a store fails under the platform", () => {
  let platform: TestPlatform;
  let operator: Operator;
  let session: string;

  beforeAll(async () => {
    platform = await startPlatform();
    operator = await openOperator(platform);
    session = await operator.openSession();
  });
  afterAll(() => platform?.stop());

  /** Changes a service's database behind its back. */
  function tamper(service: string, sql: string): void {
    const database = new DatabaseSync(join(platform.dataFolder, `${service}.sqlite`), { timeout: 10_000 });
    database.exec(sql);
    database.close();
  }

  async function expectLogged(answer: Answer, service: string, cause: RegExp): Promise<void> {
    const lines = () => linesOf(platform.process.output(), answer.body.error.request_id);
    await expect.poll(lines).toContainEqual(
      expect.objectContaining({
        level: "error",
        service,
        err: expect.objectContaining({
          message: expect.stringMatching(cause),
          stack: expect.stringMatching(/\n\s+at /),
        }),
      }),
    );
  }

  const post = (path: string, body: object, token = operator.as.token) =>
    operator.post(path, body, { ...operator.as, token, headers: { "x-request-id": `fault-${randomUUID()}` } });

  describe("a write is refused by the database", () => {
    test.each([
      ["workspace", "workspaces", () => post("/workspaces", { name: "refused" })],
      ["image-registry", "images", () => post("/sandbox-images", { name: "refused", image: "busybox" })],
      ["sandbox", "sandboxes", () => post("/sandboxes/provision", { image_id: operator.defaultImageId })],
      ["identity", "api_tokens", () => post("/api-tokens/", { description: "refused" }, session)],
    ])("of %s", async (service, table, send) => {
      const trigger = `refuse_${table}`;
      tamper(
        service,
        `CREATE TRIGGER ${trigger} BEFORE INSERT ON ${table} BEGIN SELECT RAISE(ABORT, 'out of ink'); END`,
      );
      const answer = await send();
      tamper(service, `DROP TRIGGER ${trigger}`);
      expectFault(answer, "internal_error");
      expect(answer.body.error.request_id).toMatch(/^fault-/);
      await expectLogged(answer, service, /out of ink/);
      expectStatus(await send(), 201);
    });
  });

  test("on a full disk reads go on, a write fails, and the same write succeeds once there is room", async () => {
    const name = uniqueName("full");
    const headers = { "idempotency-key": name };
    const send = () => operator.post("/workspaces", { name }, { token: operator.as.token, headers });
    const limitFileSize = (bytes: string) =>
      execute("prlimit", ["--pid", String(platform.process.child.pid), `--fsize=${bytes}:unlimited`]);
    await limitFileSize("0");
    try {
      const answer = await send();
      expectFault(answer, "internal_error");
      await expectLogged(answer, "workspace", /disk|full|I\/O/i);
      expectStatus(await operator.get("/workspaces", operator.as), 200);
    } finally {
      await limitFileSize("unlimited");
    }
    const { id } = expectStatus(await send(), 201);
    expect(expectStatus(await send(), 201).id).toBe(id);
    const { workspaces } = expectStatus(await operator.get("/workspaces?limit=500", operator.as), 200);
    expect(workspaces.filter((workspace: { name: string }) => workspace.name === name)).toHaveLength(1);
  });

  // Nothing repairs these, so they come last.
  describe("a table is gone", () => {
    test.each([
      ["telemetry", "chunks", () => operator.get(`/sandbox/monitoring/${sandboxId}`, operator.as)],
      ["sandbox", "sandboxes", () => operator.get("/sandboxes", operator.as)],
      ["image-registry", "images", () => operator.get("/sandbox-images", operator.as)],
      ["workspace", "members", () => operator.get("/workspaces", operator.as)],
      ["identity", "users", () => operator.post("/auth/login", platform.admin)],
    ])("of %s", async (service, table, send) => {
      sandboxId = service === "telemetry" ? await operator.provision(operator.defaultImageId) : sandboxId;
      expectStatus(await send(), 200);
      tamper(service, `PRAGMA foreign_keys = OFF; DROP TABLE ${table}`);
      const answer = await send();
      expectFault(answer, "internal_error");
      await expectLogged(answer, service, new RegExp(`no such table: (main\\.)?${table}`));
    });
    let sandboxId = "";

    test("requests that need no table are answered", async () => {
      expectStatus(await operator.get("/healthz"), 200);
      expectStatus(await operator.get("/openapi.json"), 200);
      await delay(0);
      expect(platform.process.child.exitCode).toBeNull();
    });
  });
});
