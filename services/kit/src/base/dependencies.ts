import { untilAborted } from "./abort.ts";
import { messageOf } from "./domain-error.ts";

/** How long one dependency may take to show that it is there. */
const patienceMs = 1_000;
/** How long all may take together to be told of, of other processes too. */
const allPatienceMs = 2_000;

/** The state of each dependency by its name: "ok", or what is wrong in one line. */
export type Dependencies = Record<string, "ok" | string>;

/** "ok" when the check of a dependency succeeds within a second, else in one line what is wrong. */
export function stateOf(check: Promise<unknown>): Promise<"ok" | string> {
  const outcome = check.then(() => "ok", messageOf);
  return untilAborted(outcome, AbortSignal.timeout(patienceMs), () => "no answer in time");
}

/** Every dependency's state, within two seconds; what keeps it from being told is a state too. */
export function statesOf(asked: Promise<Dependencies>): Promise<Dependencies> {
  const states = asked.catch((error: unknown) => ({ dependencies: messageOf(error) }));
  return untilAborted(states, AbortSignal.timeout(allPatienceMs), () => ({ dependencies: "no answer in time" }));
}
