import { untilAborted } from "./abort.ts";
import { messageOf } from "./domain-error.ts";

/** For the check of one dependency. */
const checkTimeoutMs = 1_000;
/** For the checks of all, other processes included. */
const allChecksTimeoutMs = 2_000;

/** The state of each dependency by its name: "ok", or what is wrong in one line. */
export type Dependencies = Record<string, "ok" | string>;

/** "ok" when the check of a dependency succeeds within a second, else in one line what is wrong. */
export function stateOf(check: Promise<unknown>): Promise<"ok" | string> {
  const outcome = check.then(() => "ok", messageOf);
  return untilAborted(outcome, AbortSignal.timeout(checkTimeoutMs), () => "no answer in time");
}

/** Every dependency's state, within two seconds; a failure to ask is reported as a state too. */
export function statesOf(asked: Promise<Dependencies>): Promise<Dependencies> {
  const states = asked.catch((error: unknown) => ({ dependencies: messageOf(error) }));
  return untilAborted(states, AbortSignal.timeout(allChecksTimeoutMs), () => ({ dependencies: "no answer in time" }));
}
