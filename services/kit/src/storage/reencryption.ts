import { randomUUID } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { type PeriodicTask, startPeriodicTask } from "../base/periodic-task.ts";
import { hourMs, minuteMs, monotonicMs } from "../base/time.ts";
import { type LeaseStore, releaseLease } from "./leases.ts";
import type { SealedChange, SealedColumn, SealedRow, SealedStore } from "./sealed-values.ts";
import type { Keyring } from "./sealing.ts";

/** The time between passes. Replicas that still have an older ring may have sealed values meanwhile. */
const usualEveryMs = 10 * minuteMs;
/** The time after a pass that found nothing, since on MongoDB a pass reads all that is sealed. */
const restMs = hourMs;
/** For how long a replica that was killed keeps others from passes. It is renewed at the time of each pass. */
const leaseMs = 25 * minuteMs;
const pageSize = 100;
/** How many values are re-encrypted before others get their turn. */
const atOnce = 10;
/** The metric's key of values that can't be read. */
const unknownKey = "unknown";

/** What a pass found in one column: how many values each other key still seals, and how many it re-encrypted. */
interface ColumnReport {
  table: string;
  byKey: ReadonlyMap<string, number>;
  reencrypted: number;
}

/**
 * Re-encrypts every sealed value of the store that another key than the ring's current one seals: at the start, then
 * every ten minutes, and an hour after a pass that found nothing; page by page, so that an older key can be taken out
 * of the ring. Of the replicas with the same current key one does so, by a lease. There, the metric
 * `sandgate_sealed_values` counts the values that still need another key after a pass, and the log says when something
 * changed. `state` is "ok", or why values can't be opened.
 */
export function startReencryption(o: {
  service: string;
  sealed: SealedStore;
  leases: LeaseStore;
  keyring: Keyring;
  metrics: Metrics;
  logger: Logger;
  /** Ten minutes unless given. */
  everyMs?: number;
}): PeriodicTask & { state(): "ok" | string } {
  const { service, sealed, leases, keyring, logger, everyMs = usualEveryMs } = o;
  const counted = gauge(o.metrics, {
    name: "sandgate_sealed_values",
    help: "Sealed values in the database that need another key than the key ring's current one, as of the last pass.",
    labelNames: ["service", "table", "key"],
  });
  const holder = randomUUID();
  const lease = `kit.reencryption ${keyring.currentKeyId}`;
  let restsUntil = 0;
  let reported = "";
  let state: "ok" | string = "ok";

  /** The value that replaces this one, and the key that it needs until then. No value if the ring lacks that key. */
  function reencrypt({ table }: SealedColumn, row: SealedRow): { key: string; after?: Uint8Array } {
    try {
      const key = keyring.keyIdOf(row.sealed);
      if (!keyring.hasKey(key)) return { key };
      const context = {
        service: row.service ?? service,
        table,
        record: row.id,
        ...(row.workspace !== undefined && { workspace: row.workspace }),
      };
      return { key, after: keyring.seal(keyring.open(row.sealed, context), context) };
    } catch (error) {
      logger.error({ err: error, table, record: row.id }, "a sealed value can't be re-encrypted");
      return { key: unknownKey };
    }
  }

  async function treatColumn(column: SealedColumn, signal: AbortSignal): Promise<ColumnReport> {
    const byKey = new Map<string, number>();
    let reencrypted = 0;
    let rows: SealedRow[] = [];
    do {
      signal.throwIfAborted();
      rows = await sealed.listOthers(column, keyring.currentKeyId, pageSize, rows.at(-1));
      const changes: SealedChange[] = [];
      for (const [index, row] of rows.entries()) {
        if (index % atOnce === 0) await setImmediate();
        const { key, after } = reencrypt(column, row);
        if (after) changes.push({ id: row.id, before: row.sealed, after });
        else byKey.set(key, (byKey.get(key) ?? 0) + 1);
      }
      // What has changed meanwhile was sealed with a ring as new as this one, or the next pass finds it.
      if (changes.length > 0) reencrypted += (await sealed.replace(column, changes)).length;
    } while (rows.length === pageSize);
    return { table: column.table, byKey, reencrypted };
  }

  /** Sets the metric. Returns how many values still need another key than the current one, by that key. */
  function count(reports: readonly ColumnReport[]): Map<string, number> {
    counted.reset();
    const others = new Map<string, number>();
    for (const { table, byKey } of reports) {
      for (const key of keyring.otherKeyIds) counted.set({ service, table, key }, 0);
      for (const [key, values] of byKey) {
        counted.set({ service, table, key }, values);
        others.set(key, (others.get(key) ?? 0) + values);
      }
    }
    return others;
  }

  async function treatAll(signal: AbortSignal): Promise<void> {
    const reports: ColumnReport[] = [];
    for (const column of sealed.columns) reports.push(await treatColumn(column, signal));
    const others = count(reports);
    const missing = [...others.keys()].filter((key) => key !== unknownKey && !keyring.hasKey(key));
    const problems = [
      ...(missing.length > 0 ? [`sealed values need keys that the key ring lacks: ${missing.join(", ")}`] : []),
      ...(others.has(unknownKey) ? ["sealed values were damaged or copied; the log names them"] : []),
    ];
    state = problems.length === 0 ? "ok" : problems.join("; ");
    const reencrypted = reports.reduce((sum, report) => sum + report.reencrypted, 0);
    restsUntil = reencrypted === 0 && others.size === 0 ? monotonicMs() + restMs : 0;
    const report = JSON.stringify([...others]);
    if (reencrypted === 0 && report === reported) return;
    reported = report;
    const counts = {
      key: keyring.currentKeyId,
      reencrypted,
      still_sealed_with: Object.fromEntries(others),
    };
    if (problems.length > 0) logger.error(counts, state);
    else if (others.size > 0) logger.info(counts, "some values still need another key of the key ring");
    else logger.info(counts, "everything is sealed with the current key of the key ring");
  }

  /** Another replica says what is sealed. */
  function forget(): void {
    counted.reset();
    restsUntil = 0;
    reported = "";
    state = "ok";
  }

  async function work(signal: AbortSignal): Promise<void> {
    if ((await leases.acquire([lease], holder, leaseMs)).length === 0) forget();
    else if (monotonicMs() >= restsUntil) await treatAll(signal);
  }

  const task = startPeriodicTask({ what: "re-encrypt sealed values", everyMs, logger, work });
  return {
    state: () => state,
    async stop() {
      await task.stop();
      await releaseLease({ leases, name: lease, holder, logger });
    },
  };
}
