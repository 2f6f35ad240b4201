import { untilAborted } from "./abort.ts";
import { messageOf } from "./domain-error.ts";

/** How long the check of one dependency may take. */
const checkTimeoutMs = 1_000;
/** How long all checks may take together, including those of other processes. */
const allChecksTimeoutMs = 2_000;

/** The state of each dependency by its name: "ok", or what is wrong in one line. */
export type Dependencies = Record<string, "ok" | string>;

/** Returns "ok" if the check succeeds within a second, and otherwise one line that says what is wrong. */
export function stateOf(check: Promise<unknown>): Promise<"ok" | string> {
  const outcome = check.then(() => "ok", messageOf);
  return untilAborted(outcome, AbortSignal.timeout(checkTimeoutMs), () => "no answer in time");
}

/** Returns every dependency's state within two seconds. A failure to read the states is reported as a state too. */
export function statesOf(asked: Promise<Dependencies>): Promise<Dependencies> {
  const states = asked.catch((error: unknown) => ({ dependencies: messageOf(error) }));
  return untilAborted(states, AbortSignal.timeout(allChecksTimeoutMs), () => ({ dependencies: "no answer in time" }));
}
