import type { Process } from "@sandgate/proto/helper/v1/process";
import { ProcessState } from "@sandgate/proto/helper/v1/process";

/** Signals by their numbers, as Go's standard library says them, which E2B's programs know. */
const signals: Readonly<Record<number, string>> = {
  1: "hangup",
  2: "interrupt",
  3: "quit",
  4: "illegal instruction",
  5: "trace/breakpoint trap",
  6: "aborted",
  7: "bus error",
  8: "floating point exception",
  9: "killed",
  10: "user defined signal 1",
  11: "segmentation fault",
  12: "user defined signal 2",
  13: "broken pipe",
  14: "alarm clock",
  15: "terminated",
};

/** How a process ended. One that is lost ended nobody knows how. */
export function toEnd({ state, exitCode = 0, signal }: Process) {
  if (state === ProcessState.LOST || signal > 0) {
    const status = `signal: ${signals[signal] ?? (signal > 0 ? `signal ${signal}` : "killed")}`;
    return { exitCode: -1, exited: false, status, error: status };
  }
  const status = `exit status ${exitCode}`;
  return { exitCode, exited: true, status, ...(exitCode !== 0 && { error: status }) };
}
