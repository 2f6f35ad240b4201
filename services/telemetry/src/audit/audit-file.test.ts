import { appendFile, mkdir, readFile, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect } from "vitest";
import type { AuditEntry } from "../domain/audit.ts";
import { openSqliteStore } from "../store/store.sqlite.ts";
import type { TelemetryStore } from "../store/store.ts";
import { type AuditFile, startAuditFile } from "./audit-file.ts";

const logger = createLogger({ service: "telemetry", level: "silent" });

let path: string;
let store: TelemetryStore;
let files: AuditFile[];

test.beforeEach(async ({ folder }) => {
  path = join(folder, "audit.jsonl");
  store = await openSqliteStore({ file: join(folder, "telemetry.sqlite"), logger });
  files = [];
});
afterEach(async () => {
  await Promise.all(files.map((file) => file.stop()));
  await store.close();
});

function start(o: { path?: string; store?: TelemetryStore } = {}): AuditFile {
  const file = startAuditFile({ path: o.path ?? path, store: o.store ?? store, logger });
  files.push(file);
  return file;
}

async function add(count: number): Promise<string[]> {
  const entries = Array.from(
    { length: count },
    (): AuditEntry => ({
      id: newId(),
      at: new Date("2026-01-01T00:00:00Z"),
      workspaceId: "w1",
      actorId: "ann",
      credential: { kind: "api_token", id: "t1" },
      address: "192.0.2.1",
      action: "sandbox.stop",
      target: { type: "sandbox", id: "b1" },
      outcome: "success",
      requestId: "r1",
      count: 1,
    }),
  );
  await store.audit.append(entries);
  return entries.map(({ id }) => id);
}

const linesOf = async (file = path) => (await readFile(file, "utf8").catch(() => "")).split("\n").slice(0, -1);
const idsIn = async (file = path): Promise<string[]> =>
  (await linesOf(file)).flatMap((line) => (line.endsWith("}") ? [JSON.parse(line).id] : []));

test("each entry is a line as the API shows it, in a file for its owner alone", async () => {
  const [id] = await add(1);
  start();
  await expect.poll(() => linesOf()).toHaveLength(1);
  const [line = ""] = await linesOf();
  expect(JSON.parse(line)).toEqual({
    id,
    at: "2026-01-01T00:00:00.000Z",
    workspace_id: "w1",
    actor: { user_id: "ann" },
    credential: { type: "api_token", id: "t1" },
    address: "192.0.2.1",
    action: "sandbox.stop",
    target: { type: "sandbox", id: "b1" },
    outcome: "success",
    request_id: "r1",
    count: 1,
  });
  expect((await stat(path)).mode & 0o777).toBe(0o600);
});

test("a file that is moved away is followed by another, and none is lost, also while nobody writes", async () => {
  const ids = await add(1_200);
  const file = start();
  await expect.poll(() => idsIn()).toEqual(ids);
  await rename(path, `${path}.1`);
  const later = await add(3);
  await expect.poll(() => idsIn()).toEqual(later);
  expect(await idsIn(`${path}.1`)).toEqual(ids);
  await file.stop();
  const afterwards = await add(2);
  start();
  await expect.poll(() => idsIn()).toEqual([...later, ...afterwards]);
});

test("lines that were written before a crash may come again, none is missing, and a line cut off spoils no other", async () => {
  let isCrashing = true;
  const crashing: TelemetryStore = {
    ...store,
    audit: {
      ...store.audit,
      async setCopyCursor(...moved) {
        if (isCrashing) throw new Error("killed");
        await store.audit.setCopyCursor(...moved);
      },
    },
  };
  const ids = await add(3);
  const file = start({ store: crashing });
  await expect.poll(() => file.state()).toBe("killed");
  await file.stop();
  await appendFile(path, '{"id":"cut o');
  isCrashing = false;
  start({ store: crashing });
  const last = await add(1);
  await expect.poll(async () => (await idsIn()).at(-1)).toBe(last[0]);
  expect(new Set(await idsIn())).toEqual(new Set([...ids, ...last]));
});

test("a file that can't be written says so, and gets everything later", async ({ folder }) => {
  const missing = join(folder, "later", "audit.jsonl");
  const ids = await add(2);
  const file = start({ path: missing });
  await expect.poll(() => file.state()).toContain("ENOENT");
  await mkdir(join(folder, "later"));
  await expect.poll(() => idsIn(missing)).toEqual(ids);
  await expect.poll(() => file.state()).toBe("ok");
});

test("of several that would write one does, and another goes on when it ends", async () => {
  const all = [start(), start()];
  const ids = await add(5);
  await expect.poll(() => idsIn()).toEqual(ids);
  await all[0]?.stop();
  const more = await add(5);
  await expect.poll(() => idsIn()).toEqual([...ids, ...more]);
});
