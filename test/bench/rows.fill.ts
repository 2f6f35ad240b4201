import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { newId } from "@sandgate/kit/base/ids";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import type { TestPlatform } from "../platform/local.ts";
import type { Operator } from "../platform/operator.ts";
import { report } from "./report.ts";
import { addEnded } from "./stalls.ts";

const ended = 100_000;
const old = 20_000;
const answers = 400_000;
const auditEntries = 2_000_000;
const users = 1_000_000;
const layers = 1_000_500;
const events = 600_000;
const deadLetters = 10_000;
const answerBytes = 1_024;

/** Who did most of what the audit log has, and what they did least. */
export const auditedActor = newId();
export const rareAction = "image.delete";
export const rowCounts = `${ended} ended sandboxes, ${answers} kept responses, ${auditEntries} audit entries, ${users} users with a session each, ${layers} verified layers, ${events} kept events, ${deadLetters} dead letters`;

const numbers = (count: number) =>
  `WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < ${count})`;

/** Writes the rows into the files of the platform, which is down meanwhile, and left so. */
export async function fillRows(platform: TestPlatform, operator: Operator): Promise<void> {
  await addEnded(platform, operator, ended);
  await platform.terminate();
  const change = async (service: string, fill: (db: DatabaseSync) => unknown) => {
    const db = new DatabaseSync(join(platform.dataFolder, `${service}.sqlite`));
    // Random ids touch pages all over a file: with a small cache each would be written again and again.
    db.exec("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA cache_size = -2000000; BEGIN");
    await fill(db);
    db.exec("COMMIT");
    db.close();
    report(`${service} is filled`);
  };
  await change("sandbox", async (db) => {
    const oldMs = 40 * 24 * 3_600_000;
    db.exec(`UPDATE sandboxes SET stopped_at = stopped_at - ${oldMs} WHERE id IN
      (SELECT id FROM sandboxes WHERE id GLOB '*-*-*-*-*-*' LIMIT ${old})`);
    await addAnswers(db, platform);
  });
  await change("telemetry", addAuditEntries);
  await change("identity", addUsers);
  await change("image-registry", addLayers);
  await change("events", addEvents);
}

async function addAnswers(db: DatabaseSync, { dataFolder }: TestPlatform): Promise<void> {
  const ring = await openKeyring({ file: join(dataFolder, "keys.json"), create: false });
  const insert = db.prepare(
    "INSERT INTO kit_answers (id, sealed, expires_at, service, workspace) VALUES (?, ?, ?, ?, ?)",
  );
  const service = "sandgate.sandbox.v1";
  const expiresAt = Date.now() + 24 * 3_600_000;
  const answer = randomBytes(answerBytes);
  for (let number = 0; number < answers; number++) {
    const id = randomBytes(32).toString("base64url");
    const sealed = ring.seal(answer, { service, table: "kit_answers", record: id, workspace: "w" });
    insert.run(id, sealed, expiresAt, service, "w");
  }
}

/** Half of them are of one actor, of whom none has the rare action. */
function addAuditEntries(db: DatabaseSync): void {
  db.prepare(
    `${numbers(auditEntries)}
     INSERT INTO audit_entries (id, at, workspace_id, actor_id, credential_kind, credential_id, address, action,
       target_type, target_id, outcome, request_id, count)
     SELECT 'entry-' || number, :now - number, 'workspace-' || (number % 1000),
       iif(number % 2, :actor, 'actor-' || (number % 5000)), 'session', 'credential-' || number, '192.0.2.1',
       iif(number % 4, 'sandbox.provision', iif(number % 2, 'sandbox.stop', :rare)), 'sandbox', 'sandbox-' || number,
       'success', 'request-' || number, 1
     FROM numbers`,
  ).run({ now: Date.now() - 60_000, actor: auditedActor, rare: rareAction });
}

function addUsers(db: DatabaseSync): void {
  const now = Date.now();
  db.prepare(
    `${numbers(users)}
     INSERT INTO users (id, username, username_key, verified_at, operator, version, created_at)
     SELECT 'user-' || number, 'user-' || number || '@example.com', 'user-' || number || '@example.com', :at - number, 0,
       1, :at - number FROM numbers`,
  ).run({ at: now - 60_000 });
  db.prepare(
    `${numbers(users)}
     INSERT INTO sessions (id, user_id, created_at, expires_at, idle_at, seen_at, address, user_agent)
     SELECT 'session-' || number, 'user-' || number, :at - number, :at + 86400000, :at + 86400000, :at, '192.0.2.1', 'bench'
     FROM numbers`,
  ).run({ at: now - 60_000 });
}

function addLayers(db: DatabaseSync): void {
  db.prepare(
    `${numbers(layers)}
     INSERT INTO verified_layers (host, digest, diff_id, verified_at)
     SELECT 'registry.example', 'sha256:' || printf('%064d', number), 'sha256:' || printf('%064d', number), :at - number
     FROM numbers`,
  ).run({ at: Date.now() });
}

/** Copies of an audited event, all under ids of their own, that every consumer has handled. */
function addEvents(db: DatabaseSync): void {
  const model = "(SELECT * FROM messages WHERE subject = 'sandgate.sandbox.sandbox.provisioned.v1' LIMIT 1)";
  db.prepare(
    `${numbers(events)}
     INSERT INTO messages (event_id, subject, bytes, published_at)
     SELECT 'event-' || number, subject, bytes, :at FROM numbers, ${model}`,
  ).run({ at: Date.now() });
  db.prepare(
    `INSERT INTO dead_letters (consumer, event_id, attempts, error, failed_at, bytes)
     SELECT 'telemetry-audit', event_id, 10, 'bench', :at, bytes FROM messages
     WHERE event_id GLOB 'event-*' ORDER BY seq LIMIT ${deadLetters}`,
  ).run({ at: Date.now() });
  db.exec(`UPDATE consumers SET dead_letters = ${deadLetters} WHERE name = 'telemetry-audit'`);
}
