/** Says that what a change was decided on has changed, so it has to be read and decided again. */
export type Stale = "stale";

/** Another change wins each lost attempt, so losing this many in a row is a fault. */
const maxAttempts = 200;

/**
 * Reads, decides and commits under optimistic concurrency. `attempt` returns `stale` when what it read has changed
 * before the commit, and runs again; otherwise it returns the result. Throws after 200 stale attempts in a row.
 */
export async function retryWhileStale<T>(attempt: () => Promise<T | Stale>): Promise<T> {
  for (let attempts = 0; attempts < maxAttempts; attempts += 1) {
    const result = await attempt();
    if (result !== "stale") return result;
  }
  throw new Error(`A change was not committed: what it depends on changed ${maxAttempts} times in between.`);
}
