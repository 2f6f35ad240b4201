import { join } from "node:path";
import { env } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { createLogger } from "@sandgate/kit/base/logging";
import { encodeLogs } from "@sandgate/telemetry/chunks";
import { openSqliteStore } from "@sandgate/telemetry/store.sqlite";
import { retry } from "@sandgate/test-support/retry";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { expectStatus } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { readMails, tokenIn } from "../platform/mails.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { createDelayMonitor, type DelayMonitor } from "./delay-monitor.ts";
import { type Figure, median } from "./figure.ts";
import { processorMs, residentMb } from "./process-figures.ts";
import { report } from "./report.ts";

const few = 100_000;
/** As many as this says, or the default, which takes minutes to store. */
const many = Number(env.SANDGATE_BENCH_LINES ?? 10_000_000);
/** Lines of 3 KB: 30 MB, nearly what one read may have. */
const long = 10_500;
const lineNs = 5_000_000n;
const batchLines = 5_000;
const rounds = 9;
const loadSeconds = 15;
/** Reads that each of two users keeps open: two of each run. */
const readsOfUser = 5;
const retryAfterMs = 2_000;

/**
 * Reads of logs where ten million lines are stored, of one sandbox, against the same of a hundred thousand; and how
 * late the event loop of the whole platform is while large reads follow each other.
 */
export async function measureTelemetry(): Promise<Figure[]> {
  await using closing = new AsyncDisposableStack();
  const { path: folder } = closing.use(await createTempFolder());
  const monitor = createDelayMonitor(folder);
  const settings = { SANDGATE_LOG_LEVEL: "warn", ...monitor.settings };
  const platform = closing.adopt(await startPlatform({ settings }), (each) => each.stop());
  const operator = await openOperator(platform);
  const sandboxes = { few: "", many: "", long: "" };
  for (const name of ["few", "many", "long"] as const) sandboxes[name] = await endSandbox(operator);
  const second = await addMember(platform, operator);
  await platform.terminate();
  const endMs = Date.now();
  await fill(platform, operator.as.workspace, endMs, sandboxes);
  await platform.start();

  const read = async (path: string, token = operator.as.token) => {
    const headers = { authorization: `Bearer ${token}`, "x-workspace-id": operator.as.workspace };
    const response = await fetch(`${platform.url}/sandbox/monitoring/${path}`, { headers });
    const { length } = await response.text();
    if (response.status === 429) return undefined;
    if (!response.ok) throw new Error(`${path}: ${response.status}`);
    return length;
  };
  const windowOf = (lines: number, agoLines = 0) => {
    const at = (ago: number) => new Date(endMs - (ago * Number(lineNs)) / 1e6).toISOString();
    return `since=${at(lines + 1)}&until=${at(agoLines)}`;
  };
  /** The median time of a read of the larger sandbox, of that of the smaller one. */
  const compare = async (query: (lines: number) => string) => {
    const ms = { few: [] as number[], many: [] as number[] };
    for (let round = -1; round < rounds; round++) {
      for (const [name, lines] of [["few", few] as const, ["many", many] as const]) {
        const startedMs = performance.now();
        await read(`${sandboxes[name]}?${query(lines)}`);
        if (round >= 0) ms[name].push(performance.now() - startedMs);
      }
    }
    const [fewMs, manyMs] = [median(ms.few), median(ms.many)];
    const detail = `${manyMs.toFixed(1)} ms against ${fewMs.toFixed(1)} ms`;
    report(detail);
    return { value: manyMs / fewMs, detail };
  };
  const compared: [what: string, query: (lines: number) => string][] = [
    ["newest 500 lines", (lines) => `limit=500&${windowOf(lines)}`],
    ["newest 10,000 lines", (lines) => `limit=10000&${windowOf(lines)}`],
    ["500 lines of the middle", (lines) => `limit=500&${windowOf(lines, lines / 2)}`],
    ["100 lines of a stream with few", (lines) => `limit=100&stream=stderr&${windowOf(lines)}`],
  ];
  const figures: Figure[] = [];
  for (const [what, query] of compared) {
    const { value, detail } = await compare(query);
    figures.push({
      what: `${what} of ${many / 1e6} million, of the time with ${few / 1000} thousand`,
      value,
      unit: "",
      aim: "at most 1.2",
      detail: `${detail}, median of ${rounds}`,
    });
  }

  const largest = `${sandboxes.long}?limit=10000&${windowOf(many)}`;
  const before = await processorMs(platform.process.child.pid);
  const bytes = await read(largest);
  const cpuMs = (await processorMs(platform.process.child.pid)) - before;
  const load = await measureLoad(platform, monitor, [operator.as.token, second], {
    large: [largest, `${sandboxes.many}?limit=10000&${windowOf(many)}`],
    small: `${sandboxes.few}?limit=1&${windowOf(few)}`,
    read,
  });
  figures.push({
    what: "event-loop delay while large reads follow each other, 99th percentile",
    value: load.p99,
    unit: " ms",
    aim: "at most 50 ms",
    detail: `median ${load.p50.toFixed(1)} ms, longest ${load.max.toFixed(0)} ms; ${load.reads} reads of 1 to ${((bytes ?? 0) / 1e6).toFixed(0)} MB in ${loadSeconds} s by two users (${load.refused} more were told to come later), beside which one line took ${median(load.smallMs).toFixed(0)} ms; the largest alone takes ${cpuMs.toFixed(0)} ms of processor time; ${(await residentMb(platform.process.child.pid)).toFixed(0)} MB resident afterwards`,
  });
  return figures;
}

const until = <T>(check: () => Promise<T>) => retry(check, { timeoutMs: 60_000, intervalMs: 50 });

/** A sandbox that has ended, to which lines can be added. */
async function endSandbox(operator: Operator): Promise<string> {
  const id = await operator.provisionReady(operator.defaultImageId);
  expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
  await until(async () => {
    if ((await operator.read(id)).state !== "stopped") throw new Error("it is still stopping");
  });
  return id;
}

/** The session of a second user, who is a member of the operator's workspace. */
async function addMember(platform: TestPlatform, { as, get, post }: Operator): Promise<string> {
  const account = { username: "bench@example.com", password: "many lines of a log" };
  expectStatus(await post("/auth/register", account), 201);
  const token = await until(async () => {
    const found = tokenIn((await readMails(platform.mailFolder)).at(-1));
    if (!found) throw new Error("no mail has a token yet");
    return found;
  });
  expectStatus(await post("/auth/verify-email", { token, password: account.password }), 200);
  const body = { username: account.username, role: "member" };
  expectStatus(await post(`/workspaces/${as.workspace}/members`, body, as), 201);
  const { tokens } = expectStatus(await post("/auth/login", account), 200);
  const session = { token: tokens.access_token };
  expectStatus(await get("/workspaces", session), 200);
  return expectStatus(await post("/api-tokens/", { description: "bench" }, session), 201).token;
}

/** Adds lines to the sandboxes, through the store, while the platform is down. */
async function fill(
  platform: TestPlatform,
  workspaceId: string,
  endMs: number,
  sandboxes: Record<"few" | "many" | "long", string>,
): Promise<void> {
  const logger = createLogger({ service: "bench", level: "warn" });
  const store = await openSqliteStore({ file: join(platform.dataFolder, "telemetry.sqlite"), logger });
  const shortText = (i: number) => `${i} GET /things/${(i * 7919) % 100_003} 200 ${i % 977} ms`;
  const padding = Array.from({ length: 300 }, (_, i) => ((i + 1) * 2_654_435_761) % 4_294_967_296).join(" ");
  const longText = (i: number) => `${i} ${padding}`.slice(0, 3_000);
  const fillOne = async (sandboxId: string, lines: number, batch: number, text: (i: number) => string) => {
    const startNs = BigInt(endMs) * 1_000_000n - BigInt(lines) * lineNs;
    for (let at = 0; at < lines; at += batch) {
      const rows = Array.from({ length: Math.min(batch, lines - at) }, (_, i) => {
        const line = at + i;
        return {
          timeNs: startNs + BigInt(line) * lineNs,
          stream: line % 500 ? ("stdout" as const) : ("stderr" as const),
          log: text(line),
        };
      });
      const source = { sandboxId, workspaceId, containerId: "bench", kind: "logs" } as const;
      const cursors = { fromCursor: at > 0 ? `${at}` : "", toCursor: `${at + batch}` };
      const { accepted } = await store.sources.append(
        { source, ...cursors, chunk: await encodeLogs(rows), final: at + batch >= lines },
        { quotas: { sandboxBytes: 0, workspaceBytes: 0 }, now: new Date(endMs) },
      );
      if (!accepted) throw new Error("a batch was refused");
    }
    report(`${lines} lines are stored`);
  };
  try {
    await fillOne(sandboxes.few, few, batchLines, shortText);
    await fillOne(sandboxes.many, many, batchLines, shortText);
    await fillOne(sandboxes.long, long, 340, longText);
  } finally {
    await store.close();
  }
}

/** Keeps large reads of two users open for a while, and reads one line again and again beside them. */
async function measureLoad(
  platform: TestPlatform,
  monitor: DelayMonitor<"late">,
  [first, second]: [string, string],
  o: { large: readonly string[]; small: string; read: (path: string, token: string) => Promise<number | undefined> },
) {
  await monitor.read(platform);
  const endMs = performance.now() + loadSeconds * 1000;
  let [reads, refused] = [0, 0];
  const smallMs: number[] = [];
  const repeat = async (work: () => Promise<unknown>) => {
    while (performance.now() < endMs) await work();
  };
  const readers = [first, second].flatMap((token) =>
    Array.from({ length: readsOfUser }, (_, i) =>
      repeat(async () => {
        const isRead = (await o.read(o.large[i % o.large.length] ?? "", token)) !== undefined;
        reads += isRead ? 1 : 0;
        refused += isRead ? 0 : 1;
        if (!isRead) await delay(retryAfterMs);
      }),
    ),
  );
  const watching = repeat(async () => {
    const startedMs = performance.now();
    await o.read(o.small, second);
    smallMs.push(performance.now() - startedMs);
    await delay(20);
  });
  await Promise.all([...readers, watching]);
  return { ...(await monitor.read(platform)).late, reads, refused, smallMs };
}
