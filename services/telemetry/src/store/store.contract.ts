import { describeAuditLog } from "./audit.contract.ts";
import { describeChunks } from "./chunks.contract.ts";
import { describePurges } from "./purges.contract.ts";
import { describeQuotas } from "./quotas.contract.ts";
import { describeRetention } from "./retention.contract.ts";
import { describeSources } from "./sources.contract.ts";
import type { TelemetryStore } from "./store.ts";

/** What every store of this service must do, port by port. `open` opens an empty one. */
export function describeTelemetryStore(name: string, open: () => Promise<TelemetryStore>): void {
  for (const describePort of [
    describeSources,
    describeChunks,
    describeQuotas,
    describeRetention,
    describePurges,
    describeAuditLog,
  ]) {
    describePort(name, open);
  }
}
