import { untilAborted } from "./abort.ts";

/** How long one dependency may take to show that it is there. */
const patienceMs = 1_000;

/** The state of each dependency by its name: "ok", or what is wrong in one line. */
export type Dependencies = Record<string, "ok" | string>;

/** "ok" when the check of a dependency succeeds within a second, else in one line what is wrong. */
export function stateOf(check: Promise<unknown>): Promise<"ok" | string> {
  const outcome = check.then(
    () => "ok",
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  );
  return untilAborted(outcome, AbortSignal.timeout(patienceMs), () => "no answer in time");
}
