import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { asFacade, asService } from "@sandgate/kit/rpc/context";
import { LogStream, SourceKind } from "@sandgate/proto/telemetry/v1/telemetry";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, describe, expect } from "vitest";
import { openTestService, type TestService } from "../service.fixture.ts";

const logger = createLogger({ service: "telemetry", level: "silent" });
const seconds = BigInt(Math.floor(Date.now() / 1000));

let folder: string;
let bus: EventBus;
let service: TestService;
let workspaceId: string;
/** The workspaces of sandboxes that are not `workspaceId`'s. */
const owners = new Map<string, string>();

async function open(settings: Record<string, string> = {}): Promise<void> {
  bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  service = await openTestService({
    runtime: "docker:///nowhere/docker.sock",
    installationId: newId(),
    database: { kind: "sqlite", file: join(folder, "telemetry.sqlite") },
    bus,
    keysFile: join(folder, "keys.json"),
    logger,
    workspaceOf: (sandboxId) => owners.get(sandboxId) ?? workspaceId,
    settings,
  });
}
async function close(): Promise<void> {
  await service.close();
  await bus.close();
}

test.beforeEach(({ folder: own }) => {
  folder = own;
  workspaceId = newId();
});
afterEach(close);

function member(workspace = workspaceId) {
  const user = { id: "u1", credential: "session", credentialId: "s1", operator: false, role: "member" } as const;
  return asFacade({ requestId: newId(), user: { ...user, workspaceId: workspace } });
}

async function ingest(o: {
  sandboxId: string;
  from?: string;
  to: string;
  lines: readonly string[];
  workspace?: string;
}) {
  if (o.workspace !== undefined) owners.set(o.sandboxId, o.workspace);
  const source = { sandboxId: o.sandboxId, containerId: "c1", kind: SourceKind.LOGS };
  const logs = o.lines.map((log, i) => ({
    timestamp: { seconds, nanos: Number(o.to) * 1_000_000 + i },
    stream: i % 50 === 0 ? LogStream.STDERR : LogStream.STDOUT,
    log,
  }));
  return service.as.telemetry.ingestTelemetry({ source, fromCursor: o.from ?? "", toCursor: o.to, logs }, asService());
}

async function countOf(name: string, labels: Record<string, string>): Promise<number | undefined> {
  const metric = await service.metrics.getSingleMetric(name)?.get();
  return metric?.values.find((each) => Object.entries(labels).every(([label, value]) => each.labels[label] === value))
    ?.value;
}

describe("a read in pages", () => {
  const sandboxId = newId();
  beforeEach(async () => {
    await open();
    for (let batch = 1; batch <= 12; batch += 1) {
      const lines = Array.from({ length: 300 }, (_, i) => `${batch}.${i} ${"x".repeat(i * 10)}`);
      await ingest({ sandboxId, from: batch > 1 ? `${batch - 1}` : "", to: `${batch}`, lines });
    }
  });

  async function readPages(query: { limit: number; stream?: LogStream; pageBytes: number }) {
    const pages: { logs: { log: string }[] }[] = [];
    for (let pageToken = ""; ; ) {
      const request = { sandboxId, includeLogs: true, includeMetrics: true, ...query, pageToken };
      const page = await service.as.facade.queryTelemetry(request, member());
      pages.push(page);
      pageToken = page.nextPageToken;
      if (pageToken === "") return pages;
    }
  }
  const linesOf = (pages: readonly { logs: { log: string }[] }[]) =>
    pages.toReversed().flatMap(({ logs }) => logs.map(({ log }) => log));

  test("has the same rows as one in one answer, and bounded pages", async () => {
    for (const query of [{ limit: 10_000 }, { limit: 1_234 }, { limit: 50, stream: LogStream.STDERR }]) {
      const whole = await readPages({ ...query, pageBytes: 0 });
      expect(whole).toHaveLength(1);
      const pages = await readPages({ ...query, pageBytes: 200_000 });
      expect(linesOf(pages)).toEqual(linesOf(whole));
      expect(linesOf(whole)).toHaveLength(Math.min(query.limit, 3_600));
      for (const { logs } of pages) {
        expect(logs.reduce((sum, { log }) => sum + Buffer.byteLength(log), 0)).toBeLessThanOrEqual(200_000);
      }
    }
    // Short lines, too: rows cost time each.
    const short = newId();
    await ingest({ sandboxId: short, to: "1", lines: Array(4_000).fill("") });
    const request = { sandboxId: short, includeLogs: true, limit: 10_000, pageBytes: 512 * 1024 };
    expect((await service.as.facade.queryTelemetry(request, member())).logs).toHaveLength(1_000);
  });

  test("refuses a token that it didn't give", async () => {
    for (const pageToken of ["x", "logs.1.2", "logs.1.2.3.4_", "metrics.-1.2.3.4"]) {
      await expect(
        service.as.facade.queryTelemetry({ sandboxId, includeLogs: true, pageBytes: 1_000, pageToken }, member()),
      ).rejects.toMatchObject({ reason: "VALIDATION_ERROR", violations: [{ field: "page_token" }] });
    }
  });
});

describe("what a collector sends", () => {
  beforeEach(() => open());

  test("is refused when a line or a batch is longer than ours", async () => {
    const sandboxId = newId();
    await ingest({ sandboxId, to: "1", lines: Array(16).fill("é".repeat(32 * 1024)) });
    for (const lines of [["é".repeat(32 * 1024 + 1)], Array(17).fill("x".repeat(64 * 1024))]) {
      await expect(ingest({ sandboxId, from: "1", to: "2", lines })).rejects.toMatchObject({
        reason: "VALIDATION_ERROR",
      });
    }
  });
});

describe("quotas", () => {
  test("a workspace's and the installation's hold for whatever is ingested, and what they remove is counted", async () => {
    await open({ SANDGATE_WORKSPACE_LOG_QUOTA_MB: "1", SANDGATE_LOG_TOTAL_MB: "2" });
    const text = "x".repeat(64 * 1024);
    const fill = async (workspace: string, batches: number) => {
      for (let i = 0; i < batches; i += 1) {
        await ingest({ sandboxId: newId(), to: "1", lines: Array(4).fill(text), workspace });
      }
    };
    await fill(workspaceId, 6);
    expect(await countOf("sandgate_telemetry_removed_lines_total", { limit: "workspace" })).toBe(12);
    for (let i = 0; i < 2; i += 1) await fill(newId(), 3);
    await until(async () => {
      expect(await countOf("sandgate_telemetry_removed_lines_total", { limit: "installation" })).toBe(8);
    });
  });
});

describe("below the reserve of free disk", () => {
  const reserve = { SANDGATE_DISK_RESERVE_MB: "1000000000" };

  test("nothing is ingested and the cause is named, reading goes on, and ingestion continues when there is room", async () => {
    const sandboxId = newId();
    await open();
    await ingest({ sandboxId, to: "1", lines: ["before"] });
    expect((await service.service.dependencies()).disk).toBe("ok");
    await close();

    await open(reserve);
    await expect(ingest({ sandboxId, from: "1", to: "2", lines: ["later"] })).rejects.toMatchObject({
      reason: "STORAGE_FULL",
      message: expect.stringContaining("less than the reserve of 1000000000 MB (SANDGATE_DISK_RESERVE_MB)"),
    });
    expect(await countOf("sandgate_telemetry_stored_batches_total", { outcome: "no_room" })).toBe(1);
    expect((await service.service.dependencies()).disk).toContain("SANDGATE_DISK_RESERVE_MB");
    const { logs } = await service.as.facade.queryTelemetry({ sandboxId, includeLogs: true }, member());
    expect(logs.map(({ log }) => log)).toEqual(["before"]);
    // A container that logged nothing more can go.
    const source = { sandboxId, containerId: "c1", kind: SourceKind.LOGS };
    const final = { source, fromCursor: "1", toCursor: "1", final: true };
    expect(await service.as.telemetry.ingestTelemetry(final, asService())).toMatchObject({ accepted: true });
    await close();

    await open();
    expect(await ingest({ sandboxId, from: "1", to: "2", lines: ["later"] })).toMatchObject({ accepted: true });
  });
});
