import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { type PeriodicTask, startPeriodicTask } from "../base/periodic-task.ts";
import type { Keyring } from "./sealing.ts";

/** Where a store keeps sealed values: each is sealed for the service, this table, its row's id, and the workspace if there is one. */
export interface SealedColumn {
  /** The table or collection, whose key is `id`, or `_id`. */
  readonly table: string;
  readonly column: string;
  /** The column or field of the workspace. */
  readonly workspace?: string;
  /** The column or field of the service, where that has another name here. */
  readonly service?: string;
}

export interface SealedRow {
  id: string;
  /** Undefined in a row that has no value any more. */
  sealed: Uint8Array | undefined;
  workspace?: string | undefined;
  service?: string | undefined;
}

/** The sealed values of one database. */
export interface SealedValues {
  /** Up to `limit` rows after that id, in the order of ids. */
  list(column: SealedColumn, limit: number, afterId: string | undefined): Promise<SealedRow[]>;
  /** Replaces a value with another; false, and nothing happens, when it isn't that one any more. */
  replace(column: SealedColumn, id: string, before: Uint8Array, after: Uint8Array): Promise<boolean>;
}

/** The sealed values of a service's store, and where they are. */
export interface SealedStore extends SealedValues {
  readonly columns: readonly SealedColumn[];
}

/** What the kit itself keeps sealed in every database. */
export const kitSealedColumns: readonly SealedColumn[] = [
  { table: "kit_answers", column: "sealed", service: "service", workspace: "workspace" },
];

interface Treated {
  key?: string;
  sealedAnew?: true;
}

/** How often everything is looked at: others may have sealed with an older ring meanwhile. */
const everyMs = 10 * 60_000;
const pageSize = 100;
/** What a value counts under that can't be read. */
const unknownKey = "unknown";

/**
 * Seals everything in the store that isn't sealed with the ring's current key anew, page by page, at the start and every ten
 * minutes, so that an older key can be taken out of the ring. The metric `sandgate_sealed_values` has how many values each key
 * seals after that, and the log says when something changed. `state` is "ok", or why values can't be opened.
 */
export function startSealingAnew(o: {
  service: string;
  sealed: SealedStore;
  keyring: Keyring;
  metrics: Metrics;
  logger: Logger;
}): PeriodicTask & { state(): "ok" | string } {
  const { service, sealed, keyring, logger } = o;
  const counted = gauge(o.metrics, {
    name: "sandgate_sealed_values",
    help: "Sealed values in the database by the key of the key ring that they need, as of the last pass.",
    labelNames: ["service", "table", "key"],
  });
  let reported = "";
  let state: "ok" | string = "ok";

  /** The key that the value needs now, if it is still there, and whether it was sealed anew. */
  async function treat(column: SealedColumn, row: SealedRow, before: Uint8Array): Promise<Treated> {
    const { id } = row;
    const key = keyring.keyIdOf(before);
    // An answer that was stored by version 0.1 has no place, and expires within a day.
    const isPlaced = column.service === undefined || row.service !== undefined;
    if (key === keyring.currentKeyId || !keyring.hasKey(key) || !isPlaced) return { key };
    const place = {
      service: row.service ?? service,
      table: column.table,
      record: id,
      ...(row.workspace !== undefined && { workspace: row.workspace }),
    };
    const after = keyring.seal(keyring.open(before, place), place);
    // Whoever changed it meanwhile has a ring as new as this one, or the next pass finds it.
    if (!(await sealed.replace(column, id, before, after))) return {};
    return { key: keyring.currentKeyId, sealedAnew: true };
  }

  async function treatColumn(column: SealedColumn, signal: AbortSignal) {
    const byKey = new Map<string, number>();
    let sealedAnew = 0;
    let rows: SealedRow[] = [];
    do {
      rows = await sealed.list(column, pageSize, rows.at(-1)?.id);
      for (const row of rows) {
        signal.throwIfAborted();
        if (!row.sealed) continue;
        const treated = await treat(column, row, row.sealed).catch((error: unknown): Treated => {
          const { table } = column;
          logger.error({ err: error, table, record: row.id }, "a sealed value can't be sealed anew");
          return { key: unknownKey };
        });
        if (treated.key !== undefined) byKey.set(treated.key, (byKey.get(treated.key) ?? 0) + 1);
        if (treated.sealedAnew) sealedAnew++;
      }
    } while (rows.length === pageSize);
    return { table: column.table, byKey, sealedAnew };
  }

  async function treatAll(signal: AbortSignal): Promise<void> {
    const found: Awaited<ReturnType<typeof treatColumn>>[] = [];
    for (const column of sealed.columns) found.push(await treatColumn(column, signal));
    counted.reset();
    let sealedAnew = 0;
    const others = new Map<string, number>();
    for (const { table, byKey, sealedAnew: here } of found) {
      sealedAnew += here;
      counted.set({ service, table, key: keyring.currentKeyId }, 0);
      for (const [key, count] of byKey) {
        counted.inc({ service, table, key }, count);
        if (key !== keyring.currentKeyId) others.set(key, (others.get(key) ?? 0) + count);
      }
    }
    const missing = [...others.keys()].filter((key) => key !== unknownKey && !keyring.hasKey(key));
    const problems = [
      ...(missing.length > 0 ? [`sealed values need keys that the key ring lacks: ${missing.join(", ")}`] : []),
      ...(others.has(unknownKey) ? ["sealed values were damaged or copied; the log names them"] : []),
    ];
    state = problems.length === 0 ? "ok" : problems.join("; ");
    const report = JSON.stringify([...others]);
    if (sealedAnew === 0 && report === reported) return;
    reported = report;
    const counts = {
      key: keyring.currentKeyId,
      sealed_anew: sealedAnew,
      still_sealed_with: Object.fromEntries(others),
    };
    if (problems.length > 0) logger.error(counts, state);
    else if (others.size > 0) logger.info(counts, "some values still need another key of the key ring");
    else logger.info(counts, "everything is sealed with the current key of the key ring");
  }

  const task = startPeriodicTask({ what: "seal everything with the current key", everyMs, logger, work: treatAll });
  return { stop: task.stop, state: () => state };
}
