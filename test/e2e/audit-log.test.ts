import { randomInt } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { probeEngine } from "@sandgate/test-support/images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectStatus } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

const hasServers = (await requireServer("docker", probeEngine)) && (await requireServer("registry", probeRegistry));
/** Nothing else here looks like these. */
const canaries = { registry: "canary-registry-4711", typed: "canary-typed-4711", login: "canary login 4711" };

interface Entry {
  id: string;
  action: string;
  target: { id: string } | null;
  request_id: string | null;
}

describe.runIf(hasServers)("the audit log of a platform that is killed", { timeout: 240_000 }, () => {
  let platform: TestPlatform;
  let operator: Operator;
  let registry: TestRegistry;
  let folder: Awaited<ReturnType<typeof createTempFolder>>;
  let file: string;

  beforeAll(async () => {
    folder = await createTempFolder();
    file = join(folder.path, "audit.jsonl");
    registry = await startRegistry({ users: [{ username: "puller", password: canaries.registry }] });
    platform = await startPlatform({
      settings: { SANDGATE_AUDIT_FILE: file, SANDGATE_REGISTRY_ALLOW: registry.host },
    });
    operator = await openOperator(platform);
  });
  afterAll(async () => {
    await platform?.stop();
    await registry?.stop();
    await folder?.remove();
  });

  async function readLog(): Promise<Entry[]> {
    const session = { token: await operator.openSession() };
    const entries: Entry[] = [];
    for (let cursor = ""; ; ) {
      const page = await operator.get(`/admin/audit-log?limit=500&cursor=${cursor}`, session);
      const { entries: found, next_cursor } = expectStatus(page, 200);
      entries.push(...found);
      if (next_cursor === null) return entries;
      cursor = next_cursor;
    }
  }
  async function readFileEntries(): Promise<Entry[]> {
    const lines = (await readFile(file, "utf8")).split("\n").slice(0, -1);
    // The line at which a process was killed may be cut off.
    return lines.flatMap((line) => (line.endsWith("}") ? [JSON.parse(line)] : []));
  }

  test("every action that was answered has one entry, in the log and at least once in the file", async () => {
    const actions: { action: string; targetId: string; requestId: string }[] = [];
    let isKilled = false;

    /** Does things until the platform is killed under it. */
    async function runAction(): Promise<void> {
      while (!isKilled) {
        try {
          const made = await operator.post("/sandbox-images", { name: "i", image: "busybox" }, operator.as);
          const { id } = expectStatus(made, 201);
          const note = (action: string, { headers }: { headers: Headers }) =>
            actions.push({ action, targetId: id, requestId: headers.get("x-request-id") ?? "" });
          note("image.create", made);
          const changed = await operator.put(`/sandbox-images/${id}`, { name: "j" }, operator.as);
          expectStatus(changed, 200);
          note("image.update", changed);
          const deleted = await operator.delete(`/sandbox-images/${id}`, operator.as);
          expectStatus(deleted, 204);
          note("image.delete", deleted);
        } catch (error) {
          if (!isKilled) throw error;
        }
      }
    }

    for (let round = 1; round <= 3; round++) {
      isKilled = false;
      const before = actions.length;
      const acting = Promise.all([runAction(), runAction(), runAction()]);
      await expect.poll(() => actions.length).toBeGreaterThan(before + 3);
      await delay(200 + randomInt(500));
      isKilled = true;
      await platform.kill();
      await acting;
      await platform.start();
    }
    const inLog = (entries: Entry[]) =>
      actions.map(
        (each) =>
          entries.filter(
            (entry) =>
              entry.action === each.action && entry.target?.id === each.targetId && entry.request_id === each.requestId,
          ).length,
      );
    await expect.poll(async () => new Set(inLog(await readLog()))).toEqual(new Set([1]));
    await expect.poll(async () => Math.min(...inLog(await readFileEntries()))).toBeGreaterThan(0);
    // Whatever was in the log is in the file, and nothing else.
    const log = new Set((await readLog()).map(({ id }) => id));
    await expect
      .poll(async () => new Set((await readFileEntries()).map(({ id }) => id)))
      .toSatisfy((ids: Set<string>) => [...log].every((id) => ids.has(id)));
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });

  test("no secret is in the log, in the file or in what the process prints", async () => {
    const session = { token: await operator.openSession() };
    const credential = { name: "private", url: `http://${registry.host}`, username: "puller" };
    const { id } = expectStatus(
      await operator.post("/registries", { ...credential, password: canaries.registry }, operator.as),
      201,
    );
    expectStatus(await operator.get("/registries", operator.as), 200);
    const { token } = expectStatus(await operator.post("/api-tokens/", { description: "x" }, session), 201);
    expectStatus(await operator.delete(`/api-tokens/${token}`, session), 204);
    expectError(
      await operator.post("/auth/login", { username: canaries.typed, password: canaries.login }),
      "invalid_credentials",
    );
    expectStatus(await operator.delete(`/registries/${id}`, operator.as), 204);

    const wanted = ["registry.create", "registry.list", "api_token.revoke", "registry.delete"];
    for (const read of [readLog, readFileEntries]) {
      await expect.poll(async () => (await read()).map(({ action }) => action)).toEqual(expect.arrayContaining(wanted));
    }
    const texts = [JSON.stringify(await readLog()), await readFile(file, "utf8"), platform.process.output()];
    for (const text of texts) {
      for (const secret of [...Object.values(canaries), platform.admin.password, token, session.token]) {
        expect(text).not.toContain(secret);
      }
    }
  });
});
