import { ignoreStatus } from "@sandgate/kubernetes-api/api";
import { containerName } from "@sandgate/kubernetes-api/raw-pod";
import type { LogBlock } from "../collect/container-source.ts";
import { createTimedLines } from "./log-lines.ts";

/** A log that says nothing for so long is asked for again: its connection may be dead on one side. */
const silenceMs = 240_000;

/** Resolves with a pod's log, as a query of `pods/log` asks for it; with undefined where that is forbidden. */
export type OpenLog = (
  query: Readonly<Record<string, string>>,
  signal: AbortSignal,
) => Promise<AsyncIterable<Buffer> | undefined>;

/** Reads the log of a sandbox's pod as the API server gives it. A pod that is gone, or has not started, has no lines. */
export async function* readApiLog(
  open: OpenLog,
  cursor: string,
  { follow, signal }: { follow: boolean; signal: AbortSignal },
): AsyncGenerator<LogBlock> {
  const lines = createTimedLines(cursor);
  const query = {
    container: containerName,
    timestamps: "true",
    ...(follow && { follow: "true" }),
    ...(lines.since && { sinceTime: lines.since.toISOString() }),
  };
  const silence = new AbortController();
  const timer = setTimeout(() => silence.abort(), silenceMs).unref();
  try {
    const log = await ignoreStatus([400, 404], open(query, AbortSignal.any([signal, silence.signal])));
    if (!log) return;
    for await (const bytes of log) {
      timer.refresh();
      const rows = lines.take(bytes);
      if (rows.length > 0) yield { rows, cursor: lines.cursor() };
    }
    const rows = follow ? [] : lines.finish();
    if (rows.length > 0) yield { rows, cursor: lines.cursor() };
  } catch (error) {
    signal.throwIfAborted();
    if (!silence.signal.aborted) throw error;
  } finally {
    clearTimeout(timer);
  }
}
