import { timestampDate } from "@bufbuild/protobuf/wkt";
import { hasReason } from "@sandgate/kit/base/domain-error";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { type Process, ProcessService, ProcessState } from "@sandgate/proto/helper/v1/process";
import { HelperUnavailable } from "../runtime/helper-end.ts";
import type { HelperConnections } from "./helper-connections.ts";
import { fromHelperError } from "./helper-errors.ts";

/** A helper that doesn't answer in time keeps no sandbox. */
const timeoutMs = 5_000;

/**
 * When a command of ours ran in a sandbox last: now, if one does. Undefined: none has, or the helper can't say
 * or be started. Only for a sandbox that was used before, as it starts the helper. Throws RUNTIME_UNAVAILABLE when the
 * runtime itself can't be asked.
 */
export async function findLastRun(
  connections: Pick<HelperConnections, "open">,
  sandboxId: string,
): Promise<Date | undefined> {
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const { transport } = await connections.open(sandboxId, signal);
    const { processes } = await createClient(ProcessService, transport).listProcesses({}, { signal });
    return lastRunOf(processes, new Date());
  } catch (cause) {
    const error = fromHelperError(cause);
    const isOutage = hasReason(error, "RUNTIME_UNAVAILABLE") && !(error instanceof HelperUnavailable);
    if (isOutage && !signal.aborted) throw error;
    return undefined;
  }
}

/** What the helper says is not trusted: nothing has run later than now. */
function lastRunOf(processes: readonly Process[], now: Date): Date | undefined {
  const times = processes.map(({ state, endedAt }) => {
    if (state === ProcessState.RUNNING) return now.getTime();
    return endedAt ? Math.min(timestampDate(endedAt).getTime(), now.getTime()) : 0;
  });
  const last = times.reduce((one, other) => Math.max(one, other), 0);
  return last > 0 ? new Date(last) : undefined;
}
