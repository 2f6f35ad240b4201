import type { EventBus } from "@sandgate/kit/events/bus";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import { auditedSubjects, toAuditEntry } from "./domain/audited-events.ts";
import type { AuditLog } from "./store/audit.ts";

/** Entries that come together are stored together on either database. */
const concurrency = 250;

/** Writes an audit entry for each audited event. An event that arrives twice has its entry already. */
export function consumeEvents({ bus, store }: { bus: EventBus; store: { audit: AuditLog } }): Promise<BackgroundTask> {
  return bus.consume({
    consumer: "telemetry-audit",
    subjects: auditedSubjects,
    concurrency,
    async handle(event) {
      const entry = toAuditEntry(event);
      if (entry) await store.audit.append([entry]);
    },
  });
}
