import { randomInt } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { buildImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, expectStatus, uniqueName } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { listContainers, type Operator, openOperator } from "../platform/operator.ts";

describe.runIf(await requireServer("docker", probeEngine))("a crash of the platform", { timeout: 300_000 }, () => {
  const engine = openTestEngine();
  let platform: TestPlatform;
  let operator: Operator;
  let images: TestImage[] = [];
  let idleImageId: string;
  let brokenImageId: string;

  beforeAll(async () => {
    images = await Promise.all([
      buildImage(engine, { command: ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"] }),
      buildImage(engine, { command: ["sh", "-c", "echo broken; exit 3"] }),
    ]);
    platform = await startPlatform({ settings: { SANDGATE_WORKSPACE_MAX_SANDBOXES: "0" } });
    operator = await openOperator(platform);
    [idleImageId = "", brokenImageId = ""] = await Promise.all(
      images.map((image) => operator.registerImage(image.reference)),
    );
  });
  afterAll(async () => {
    await platform?.stop();
    await Promise.all(images.map((image) => image.remove()));
  });

  const settles = (sandboxId: string) =>
    expect.poll(async () => {
      const { state, state_reason } = await operator.read(sandboxId);
      return [state, state_reason];
    });

  test("provisioning goes on where it stopped, with one container for each sandbox and none left over", async () => {
    for (let round = 1; round <= 4; round++) {
      const healthy = await Promise.all([operator.provision(idleImageId), operator.provision(idleImageId)]);
      const broken = await operator.provision(brokenImageId);
      const crashAfterMs = randomInt(700);
      await delay(crashAfterMs);
      await platform.kill();
      await platform.start();
      const when = `round ${round}: crashed after ${crashAfterMs} ms`;
      for (const sandboxId of healthy) {
        const ready = expectStatus(await operator.wait(sandboxId), 200);
        expect(ready, when).toMatchObject({ id: sandboxId, state: "ready" });
        expect(await listContainers(platform, sandboxId), when).toHaveLength(1);
      }
      await settles(broken).toEqual(["failed", "exited"]);
      expect(await operator.read(broken), when).toMatchObject({ exit_code: 3 });
      for (const sandboxId of healthy) expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
    }
    await expect.poll(() => listContainers(platform)).toEqual([]);
  });

  test("a stop that was accepted just before is carried out", async () => {
    const ready = await operator.provisionReady(idleImageId);
    const starting = await operator.provision(idleImageId);
    for (const sandboxId of [ready, starting]) {
      expectStatus(await operator.delete(`/sandboxes/${sandboxId}`, operator.as), 204);
    }
    await platform.kill();
    await platform.start();
    for (const sandboxId of [ready, starting]) {
      await settles(sandboxId).toEqual(["stopped", "stopped_by_user"]);
      await expect.poll(() => listContainers(platform, sandboxId)).toEqual([]);
    }
  });

  test("every acknowledged write is kept, and a repeated one is done once", async () => {
    const prefix = uniqueName("write");
    const session = await operator.openSession();
    const kinds = [
      { path: "/workspaces", field: "name", body: {}, options: { token: session } },
      { path: "/sandbox-images", field: "name", body: { image: "busybox" }, options: operator.as },
      { path: "/api-tokens/", field: "description", body: {}, options: { token: session } },
    ];
    const attempts: { name: string; send(): Promise<Answer>; answer?: unknown }[] = [];
    const listAcknowledged = () => attempts.filter(({ answer }) => answer !== undefined);
    let crashed = false;

    async function writeUntilCrash({ path, field, body, options }: (typeof kinds)[number]): Promise<void> {
      while (!crashed) {
        const name = `${prefix}-${attempts.length}`;
        const headers = { "idempotency-key": name };
        const send = () => operator.post(path, { ...body, [field]: name }, { ...options, headers });
        const attempt: (typeof attempts)[number] = { name, send };
        attempts.push(attempt);
        try {
          attempt.answer = expectStatus(await send(), 201);
        } catch (error) {
          if (!crashed) throw error;
        }
      }
    }

    for (let round = 1; round <= 2; round++) {
      crashed = false;
      const before = listAcknowledged().length;
      const writers = Promise.all([...kinds, ...kinds, ...kinds].map(writeUntilCrash));
      await expect.poll(() => listAcknowledged().length).toBeGreaterThan(before);
      await delay(200 + randomInt(300));
      crashed = true;
      await platform.kill();
      await writers;
      await platform.start();
    }

    for (const { send, answer } of attempts) {
      const repeated = expectStatus(await send(), 201);
      if (answer !== undefined) expect(repeated).toEqual(answer);
    }
    const found: string[] = [];
    for (const { path, field, options } of kinds) {
      for (let cursor: string | null = ""; cursor !== null; ) {
        const page = expectStatus(await operator.get(`${path}?limit=500&cursor=${cursor}`, options), 200);
        const records: Record<string, string>[] = page.workspaces ?? page.images ?? page.api_tokens;
        found.push(...records.map((record) => record[field] ?? ""));
        cursor = page.next_cursor;
      }
    }
    const mine = found.filter((name) => name.startsWith(prefix));
    expect(mine.sort()).toEqual(attempts.map(({ name }) => name).sort());
  });

  test("a sandbox whose request is repeated is provisioned once", async () => {
    const name = uniqueName("once");
    const headers = { "idempotency-key": name };
    const send = () =>
      operator.post("/sandboxes/provision", { image_id: idleImageId, name }, { ...operator.as, headers });
    const lost = send().catch(() => undefined);
    await delay(randomInt(20));
    await platform.kill();
    await lost;
    await platform.start();
    const answers = await Promise.all([send(), send()]);
    const [first, second] = answers.map((answer) => expectStatus(answer, 201));
    expect(second).toEqual(first);
    expectStatus(await operator.wait(first.id), 200);
    const { sandboxes } = expectStatus(await operator.get("/sandboxes?limit=500", operator.as), 200);
    expect(sandboxes.filter((sandbox: { name: string }) => sandbox.name === name)).toHaveLength(1);
    expect(await listContainers(platform, first.id)).toHaveLength(1);
  });

  describe("containers changed behind its back", () => {
    test("one that is removed is lost", async () => {
      const sandboxId = await operator.provisionReady(idleImageId);
      await engine.getContainer(`sandgate-${sandboxId}`).remove({ force: true });
      await settles(sandboxId).toEqual(["failed", "runtime_lost"]);
    });

    test("one that is killed has exited", async () => {
      const sandboxId = await operator.provisionReady(idleImageId);
      await engine.getContainer(`sandgate-${sandboxId}`).kill();
      await settles(sandboxId).toEqual(["failed", "exited"]);
      expect(await operator.read(sandboxId)).toMatchObject({ exit_code: 137 });
      await expect.poll(() => listContainers(platform, sandboxId)).toEqual([]);
    });

    test("both are noticed after a restart too", async () => {
      const removed = await operator.provisionReady(idleImageId);
      const killed = await operator.provisionReady(idleImageId);
      await platform.kill();
      await engine.getContainer(`sandgate-${removed}`).remove({ force: true });
      await engine.getContainer(`sandgate-${killed}`).kill();
      await platform.start();
      await settles(killed).toEqual(["failed", "exited"]);
      await settles(removed).toEqual(["failed", "runtime_lost"]);
    });
  });
});
