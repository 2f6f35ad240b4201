import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Outcome } from "../store/store.ts";

/** Each lost round was won by another change, so this many lost in a row is a fault and not bad luck. */
const mostRounds = 200;

/**
 * Reads, decides and commits, again for as long as the workspace changes in between.
 *
 * @param round answers the outcome of the commit, and the value to answer once it is done
 */
export async function commit<T>(round: () => Promise<{ outcome: Outcome; value: T }>): Promise<T> {
  for (let rounds = 0; rounds < mostRounds; rounds += 1) {
    const { outcome, value } = await round();
    if (outcome === "done") return value;
    if (outcome === "departed") throw new DomainError("MEMBER_NOT_FOUND", "This account has been deleted.");
  }
  throw new Error(`The workspace changed ${mostRounds} times while one change of it was to be made.`);
}
