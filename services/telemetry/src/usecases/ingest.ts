import { DomainError } from "@sandgate/kit/base/domain-error";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { Batch } from "../domain/batches.ts";
import type { LogQuotas } from "../domain/quotas.ts";
import { signalStored } from "../events.ts";
import type { Appended, Sources } from "../store/sources.ts";
import { countRemovedLines } from "./retention.ts";

/**
 * Stores a batch, unless the signal aborts before its turn, or refuses it with the stored cursor. Throws STORAGE_FULL, and what
 * `Sources.append` throws.
 */
export type Ingest = (batch: Batch, signal?: AbortSignal) => Promise<Appended>;

export function createIngest(o: {
  sources: Sources;
  bus: EventBus;
  metrics: Metrics;
  quotas: LogQuotas;
  /** Why new rows can't be stored now, in one line; undefined: they can. */
  shortage(): Promise<string | undefined>;
}): Ingest {
  const { sources, bus, quotas } = o;
  const storedBatches = counter(o.metrics, {
    name: "sandgate_telemetry_stored_batches_total",
    help: "Batches of logs and samples, by what became of them",
    labelNames: ["outcome"],
  });
  const removedLines = countRemovedLines(o.metrics);

  return async (batch, signal) => {
    // A cursor alone takes no space, and lets containers go that have nothing to store.
    const shortage = batch.chunk && (await o.shortage());
    if (shortage !== undefined) {
      storedBatches.inc({ outcome: "no_room" });
      throw new DomainError("STORAGE_FULL", `No logs or samples are stored: ${shortage}.`);
    }
    const appended = await sources.append(batch, { quotas, now: new Date(), signal });
    storedBatches.inc({ outcome: appended.accepted ? "accepted" : "refused" });
    removedLines.inc({ limit: "sandbox" }, appended.removedLines.sandbox);
    removedLines.inc({ limit: "workspace" }, appended.removedLines.workspace);
    if (appended.accepted) signalStored(bus, batch.source.sandboxId);
    return appended;
  };
}
