import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { isUuid } from "@sandgate/kit/base/ids";
import { type Process, ProcessState } from "@sandgate/proto/helper/v1/process";

const states: ReadonlySet<ProcessState> = new Set([ProcessState.RUNNING, ProcessState.EXITED, ProcessState.LOST]);
const maxBytes = BigInt(Number.MAX_SAFE_INTEGER);
/** Of the years 1970 to 9999. */
const lastSecond = 253_402_300_799n;

/**
 * What the helper says of a process, within the bounds of its contract. Throws UPSTREAM_ERROR for what no process can be,
 * and for another one than was asked for.
 */
export function boundProcess(process: Process | undefined, id?: string): Process {
  if (process && isPossible(process) && (id === undefined || process.id === id)) return process;
  throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of a process that can't be.");
}

function isPossible(process: Process): boolean {
  const { id, pid, state, exitCode, signal, outputBytes, retainedFrom, startedAt, endedAt, terminal } = process;
  return (
    isUuid(id) &&
    pid >= 0 &&
    states.has(state) &&
    (exitCode === undefined || (exitCode >= 0 && exitCode <= 255)) &&
    signal >= 0 &&
    signal <= 64 &&
    retainedFrom >= 0n &&
    retainedFrom <= outputBytes &&
    outputBytes <= maxBytes &&
    startedAt !== undefined &&
    isTime(startedAt) &&
    (endedAt === undefined || isTime(endedAt)) &&
    (terminal === undefined || (isSize(terminal.cols) && isSize(terminal.rows)))
  );
}

function isTime({ seconds, nanos }: Timestamp): boolean {
  return seconds >= 0n && seconds <= lastSecond && nanos >= 0 && nanos < 1_000_000_000;
}

function isSize(count: number): boolean {
  return count >= 1 && count <= 1_000;
}
