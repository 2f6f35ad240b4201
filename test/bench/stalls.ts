import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { hashTexts } from "@sandgate/kit/storage/text-hash";
import { openTestEngine } from "@sandgate/test-support/images";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { createDelayMonitor } from "./delay-monitor.ts";
import { type Figure, median } from "./figure.ts";
import { processorMs } from "./process-figures.ts";
import { removeSandbox } from "./sandboxes.ts";

const few = 1_000;
const many = 100_000;
const imageCount = 20_000;
const clients = 8;
const loadMs = 30_000;
/** Requests of each list, one after another. */
const rounds = 100;
/** Requests before them. */
const warmUps = 20;

/** Lists whose answers are as long however many sandboxes have ended. */
const lists = [
  "/sandboxes?limit=10",
  "/sandboxes?limit=10&state=ready",
  "/sandboxes?limit=10&state=provisioning,ready,stopping",
  "/sandboxes?limit=10&state=stopped,failed",
  "/sandboxes?limit=10&label=batch:7",
  "/sandboxes?limit=10&label=batch:7&label=purpose:bench",
  "/sandboxes?limit=10&label=purpose:bench&state=ready",
  "/sandboxes/ended",
];
/** The longest answers there are. */
const longLists = [
  "/sandboxes?limit=500",
  "/sandboxes?limit=500&state=stopped,failed",
  "/sandboxes?limit=500&label=purpose:bench",
  "/sandbox-images?limit=500",
  "/sandbox-images",
  "/sandbox-images?enabled_only=true",
];

/**
 * Lists of a workspace in which very many sandboxes have ended: what they cost beside a workspace of few, and how long
 * the platform's process keeps other requests waiting while several clients ask for all of them, the longest too.
 */
export async function measureStalls(): Promise<Figure[]> {
  await using closing = new AsyncDisposableStack();
  const { path: folder } = closing.use(await createTempFolder());
  const monitor = createDelayMonitor(folder, { atWork: true });
  const platform = closing.adopt(await startPlatform({ settings: monitor.settings }), (each) => each.stop());
  const operator = await openOperator(platform);
  await addEnded(platform, operator, few);
  const before = await measureLists(platform, operator);
  await addEnded(platform, operator, many - few);
  await addImages(platform, operator, imageCount);
  const after = await measureLists(platform, operator);
  await monitor.read(platform);
  const answered = await loadLists(operator);
  const { late, atWork } = await monitor.read(platform);
  const ms = (value: number) => value.toFixed(1);
  return [
    {
      what: `a list among ${many} ended sandboxes, of what it costs among ${few}`,
      value: median(lists.map((_, index) => (after[index] ?? Number.NaN) / (before[index] ?? Number.NaN))),
      unit: "",
      aim: "at most 1.2",
      detail: `µs of processor time: ${lists.map((list, index) => `${list} ${before[index]?.toFixed(0)} and ${after[index]?.toFixed(0)}`).join(", ")}`,
    },
    {
      what: "event loop delay, 99th percentile",
      value: late.p99,
      unit: " ms",
      aim: "below 50 ms",
      detail: `${ms(atWork.p99)} ms of it at work; half below ${ms(late.p50)} ms, longest ${ms(late.max)} ms (${ms(atWork.max)} at work), while ${clients} clients got ${answered} lists in ${loadMs / 1000} s, with ${imageCount} images`,
    },
  ];
}

/** The processor time of the platform for each list, in µs. */
async function measureLists(platform: TestPlatform, operator: Operator): Promise<number[]> {
  const { pid } = platform.process.child;
  const micros: number[] = [];
  for (const path of lists) {
    for (let round = 0; round < warmUps; round++) await read(operator, path);
    const before = await processorMs(pid);
    for (let round = 0; round < rounds; round++) await read(operator, path);
    micros.push((((await processorMs(pid)) - before) * 1000) / rounds);
  }
  return micros;
}

async function loadLists(operator: Operator): Promise<number> {
  const until = performance.now() + loadMs;
  const all = [...lists, ...longLists];
  let answered = 0;
  await Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      for (let next = client; performance.now() < until; next++) {
        await read(operator, all[next % all.length] ?? "");
        answered++;
      }
    }),
  );
  return answered;
}

async function read({ url, as }: Operator, path: string): Promise<void> {
  const headers = { authorization: `Bearer ${as.token}`, "x-workspace-id": as.workspace };
  const response = await fetch(url + path, { headers });
  await response.arrayBuffer();
  if (response.status !== 200) throw new Error(`${path} was answered with ${response.status}`);
}

/** Makes copies of a sandbox that has ended, older than it, while the platform is down. */
export async function addEnded(platform: TestPlatform, operator: Operator, count: number): Promise<void> {
  const model = await operator.provisionReady(operator.defaultImageId, {
    name: "ended",
    labels: { purpose: "bench", batch: "7" },
  });
  await removeSandbox(operator, openTestEngine(), model);
  await changeRows(platform, "sandbox", (db) => {
    db.prepare(
      `WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < :count)
       INSERT INTO sandboxes (id, version, workspace_id, name, state, created_at, stopped_at, cleaned_at, record)
       SELECT :model || '-' || number, version, workspace_id, iif(number % 2, name, name || number), state,
         created_at - number, stopped_at - number, coalesce(cleaned_at, stopped_at) - number,
         json_set(record, '$.id', :model || '-' || number, '$.name', iif(number % 2, name, name || number),
           '$.createdAt', strftime('%Y-%m-%dT%H:%M:%fZ', (created_at - number) / 1000.0, 'unixepoch'),
           '$.labels', json_object('purpose', 'bench', 'batch', CAST(number % 50 AS TEXT)))
       FROM numbers, sandboxes WHERE id = :model`,
    ).run({ model, count });
    db.function("hash_texts", { deterministic: true, varargs: true }, hashTexts);
    db.prepare(
      `INSERT INTO label_keys (label, state, created_at, sandbox_id)
       SELECT hash_texts(s.workspace_id, label.key, label.value), s.state, s.created_at, s.id
       FROM sandboxes s, json_each(s.record, '$.labels') label WHERE s.id GLOB ?`,
    ).run(`${model}-*`);
  });
}

/** Makes copies of an image of the workspace, every other one disabled, while the platform is down. */
async function addImages(platform: TestPlatform, operator: Operator, count: number): Promise<void> {
  const body = { name: "bench", image: "registry.example/bench", description: "x".repeat(200) };
  const { body: model } = await operator.post("/sandbox-images", body, operator.as);
  await changeRows(platform, "image-registry", (db) => {
    db.prepare(
      `WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < :count)
       INSERT INTO images (id, workspace_id, name, image, description, tag, enabled, memory_mb, created_at, updated_at, version)
       SELECT :model || '-' || number, workspace_id, name || number, image, description, tag, number % 2, memory_mb,
         created_at - number, updated_at, version
       FROM numbers, images WHERE id = :model`,
    ).run({ model: model.id, count });
  });
}

async function changeRows(platform: TestPlatform, service: string, change: (db: DatabaseSync) => void): Promise<void> {
  await platform.terminate();
  const db = new DatabaseSync(join(platform.dataFolder, `${service}.sqlite`));
  change(db);
  db.close();
  await platform.start();
}
