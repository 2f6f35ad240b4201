import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { askSocket } from "@sandgate/kit/process/admin.socket";
import { adminSocketName } from "@sandgate/kit/process/admin-client";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { createDelayMonitor, type DelayMonitor, type Delays } from "./delay-monitor.ts";
import { type Figure, median, percentile } from "./figure.ts";
import { report } from "./report.ts";
import { auditedActor, fillRows, rareAction, rowCounts } from "./rows.fill.ts";

const aim = "below 500 ms";
/** How long requests are measured beside an operation at least, and at most. */
const [leastMs, mostMs] = [5_000, 60_000];
/** The time between two of the requests that are measured. */
const pauseMs = 10;
/** How often a request is repeated whose effect on the others is measured. */
const repeats = 10;

type Latencies = Record<"healthz" | "write", number[]>;

interface Measured {
  what: string;
  late: Delays;
  atWork: Delays;
  latencies: Latencies;
}

/**
 * A platform with very many rows: how long its event loop stands still, and what a GET of /healthz and a small write
 * take, while it does what once went through all of them.
 */
export async function measureRows(): Promise<Figure[]> {
  await using closing = new AsyncDisposableStack();
  const { path: folder } = closing.use(await createTempFolder());
  const monitor = createDelayMonitor(folder, { atWork: true });
  const platform = closing.adopt(await startPlatform({ settings: monitor.settings }), (each) => each.stop());
  const operator = await openOperator(platform);
  const measure = (what: string, work: () => Promise<unknown>) =>
    measureBeside({ what, work, platform, operator, monitor });
  const start = async () => {
    const startedAt = performance.now();
    await platform.start();
    return performance.now() - startedAt;
  };
  const restart = async (change: () => unknown) => {
    await platform.terminate();
    await change();
    return start();
  };

  const emptyStartMs = await restart(() => undefined);
  const empty = await measure("nothing else happens on an empty platform", () => delay(leastMs));
  await fillRows(platform, operator);
  // A start waits for the disk, which still writes them.
  execFileSync("sync");
  const fullStartMs = await start();
  const measured = [await measure("old records are deleted and layers counted", () => delay(4 * leastMs))];
  await restart(() => addRingKey(platform));
  measured.push(await measure("400,000 responses are encrypted again", () => delay(mostMs)));
  const session = { token: await operator.openSession() };
  const repeated = async (ask: () => Promise<{ status: number }>) => {
    for (let round = 0; round < repeats; round++) {
      const { status } = await ask();
      if (status !== 200) throw new Error(`a request was answered with ${status}`);
    }
  };
  const operate = (method: string, path: string) => askSocket(join(platform.dataFolder, adminSocketName), method, path);
  const audit = `/admin/audit-log?actor=${auditedActor}&action=${rareAction}`;
  measured.push(
    await measure("/metrics is read", () => repeated(() => fetch(`${platform.adminUrl}/metrics`))),
    await measure("the audit log is read by actor and action", () => repeated(() => operator.get(audit, session))),
    await measure("a user is looked up by name", () =>
      repeated(() => operator.get("/admin/users?username=user-500000@example.com", session)),
    ),
    await measure("dead letters are listed", () => repeated(() => operate("GET", "/dead-letters"))),
    await measure("all sessions end in an emergency", () => operate("POST", "/commands/rotate-keys?option=emergency")),
  );
  await restart(() => forgetConsumer(platform));
  measured.push(await measure("a new consumer gets 600,000 kept events", () => delay(mostMs)));
  return [
    {
      what: "seconds until ready, with all rows",
      value: fullStartMs / 1000,
      unit: " s",
      aim: "as with none",
      detail: `${(emptyStartMs / 1000).toFixed(1)} s with none; ${rowCounts}`,
    },
    ...measured.map((each) => toFigure(each, empty)),
  ];
}

function toFigure({ what, late, atWork, latencies }: Measured, empty: Measured): Figure {
  const ms = (value: number) => value.toFixed(1);
  const compared = (["healthz", "write"] as const).map((name) => {
    const [values, others] = [latencies[name], empty.latencies[name]];
    const ratio = median(values) / median(others);
    const p99 = `99 % ${ms(percentile(values, 0.99))} and ${ms(percentile(others, 0.99))}`;
    return `${name} ${ratio.toFixed(2)} times as long as on an empty platform (${ms(median(values))} and ${ms(median(others))} ms; ${p99}; longest ${ms(Math.max(...values))})`;
  });
  return {
    what: `longest stall of the event loop while ${what}`,
    value: late.max,
    unit: " ms",
    aim,
    detail: `${ms(atWork.max)} ms of it at work; ${compared.join("; ")}`,
  };
}

/** Asks for /healthz and renames a workspace, again and again, until the work is over. */
async function measureBeside(o: {
  what: string;
  work: () => Promise<unknown>;
  platform: TestPlatform;
  operator: Operator;
  monitor: DelayMonitor<"late" | "atWork">;
}): Promise<Measured> {
  const { what, platform, operator, monitor } = o;
  const latencies: Latencies = { healthz: [], write: [] };
  await monitor.read(platform);
  const startedAt = performance.now();
  let isOver = false;
  const repeat = async (name: keyof Latencies, ask: () => Promise<{ status: number }>) => {
    while (!isOver || performance.now() < startedAt + leastMs) {
      const askedAt = performance.now();
      const { status } = await ask();
      if (status !== 200) throw new Error(`${name} was answered with ${status}`);
      latencies[name].push(performance.now() - askedAt);
      await delay(pauseMs);
    }
  };
  const { as } = operator;
  let number = 0;
  const rename = () => operator.put(`/workspaces/${as.workspace}`, { name: `bench ${number++}` }, as);
  await Promise.all([
    repeat("healthz", () => operator.get("/healthz")),
    repeat("write", rename),
    o.work().finally(() => {
      isOver = true;
    }),
  ]);
  const tookMs = performance.now() - startedAt;
  const { late, atWork } = await monitor.read(platform);
  const medians = `healthz ${median(latencies.healthz).toFixed(1)} ms, write ${median(latencies.write).toFixed(1)} ms`;
  report(`${what}: ${tookMs.toFixed(0)} ms, longest stall ${late.max.toFixed(0)} ms, ${medians}`);
  return { what, late, atWork, latencies };
}

/** Another key seals from now on. */
function addRingKey({ dataFolder }: TestPlatform): void {
  const file = join(dataFolder, "keys.json");
  const { keys } = JSON.parse(readFileSync(file, "utf8"));
  const next = Buffer.alloc(32, 7).toString("base64");
  writeFileSync(file, JSON.stringify({ current: "next", keys: { ...keys, next } }));
}

/** The consumer of the audit log is new again, and gets all that is kept. */
function forgetConsumer({ dataFolder }: TestPlatform): void {
  const db = new DatabaseSync(join(dataFolder, "events.sqlite"));
  db.exec(`DELETE FROM deliveries WHERE consumer = 'telemetry-audit';
    DELETE FROM fills WHERE consumer = 'telemetry-audit';
    DELETE FROM dead_letters WHERE consumer = 'telemetry-audit';
    DELETE FROM consumers WHERE name = 'telemetry-audit'`);
  db.close();
}
