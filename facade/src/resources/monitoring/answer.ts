import type { LogEntry, MetricPoint } from "@sandgate/proto/telemetry/v1/telemetry";
import { toLogEntry, toMetricPoint } from "./mapping.ts";

/** Collects the answer of a read, page by page, as JSON: one page at a time is all that the process is busy with. */
export interface MonitoringAnswer {
  /** Adds rows that are older than all before. */
  add(page: { logs: readonly LogEntry[]; metrics: readonly MetricPoint[] }): void;
  /** The JSON in chunks, in their order. */
  toJson(): Buffer[];
}

/** Of the schema Monitoring. */
export function createMonitoringAnswer(sandbox: { id: string; name: string }): MonitoringAnswer {
  const logs: Buffer[] = [];
  const metrics: Buffer[] = [];
  return {
    add(page) {
      if (page.logs.length > 0) logs.unshift(toJsonItems(page.logs.map(toLogEntry)));
      if (page.metrics.length > 0) metrics.unshift(toJsonItems(page.metrics.map(toMetricPoint)));
    },
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

/** The items of a JSON list, without its brackets. */
function toJsonItems(items: readonly unknown[]): Buffer {
  return Buffer.from(JSON.stringify(items).slice(1, -1));
}

const comma = Buffer.from(",");

function separated(chunks: readonly Buffer[]): Buffer[] {
  return chunks.flatMap((chunk, i) => (i === 0 ? [chunk] : [comma, chunk]));
}
