import type { LogEntry, MetricPoint } from "@sandgate/proto/telemetry/v1/telemetry";
import { toLogEntry, toMetricPoint } from "./mapping.ts";

/** Collects the answer of a read, page by page, as JSON: one page at a time is all that the process is busy with. */
export interface MonitoringAnswer {
  /** Adds rows that are older than all before, and returns how many bytes they are. */
  add(page: { logs: readonly LogEntry[]; metrics: readonly MetricPoint[] }): number;
  /** The JSON in chunks, in their order. */
  toJson(): Buffer[];
}

/** Of the schema Monitoring. */
export function createMonitoringAnswer(sandbox: { id: string; name: string }): MonitoringAnswer {
  const logs: Buffer[] = [];
  const metrics: Buffer[] = [];
  return {
    add: (page) => addOlder(logs, page.logs.map(toLogEntry)) + addOlder(metrics, page.metrics.map(toMetricPoint)),
    toJson() {
      const head = `{"sandbox_id":${JSON.stringify(sandbox.id)},"sandbox_name":${JSON.stringify(sandbox.name)},"logs":[`;
      return [
        Buffer.from(head),
        ...separated(logs),
        Buffer.from('],"metrics":['),
        ...separated(metrics),
        Buffer.from("]}"),
      ];
    },
  };
}

/** Adds items to the chunks of a JSON list, which has no brackets, and returns how many bytes they are. */
function addOlder(list: Buffer[], items: readonly unknown[]): number {
  if (items.length === 0) return 0;
  const json = Buffer.from(JSON.stringify(items).slice(1, -1));
  list.unshift(json);
  return json.length;
}

const comma = Buffer.from(",");

function separated(chunks: readonly Buffer[]): Buffer[] {
  return chunks.flatMap((chunk, i) => (i === 0 ? [chunk] : [comma, chunk]));
}
