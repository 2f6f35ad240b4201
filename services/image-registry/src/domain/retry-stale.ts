/** Each lost round was won by another change, so this many lost in a row is a fault and not bad luck. */
const mostRounds = 50;

/**
 * Reads, decides and commits, again for as long as what was read changes in between.
 *
 * @param round answers what to answer, or undefined when the commit found its versions stale
 */
export async function commit<T extends object>(round: () => Promise<T | undefined>): Promise<T> {
  for (let rounds = 0; rounds < mostRounds; rounds += 1) {
    const answer = await round();
    if (answer !== undefined) return answer;
  }
  throw new Error(`A record changed ${mostRounds} times while one change of it was to be made.`);
}
