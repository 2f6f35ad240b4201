/** What a change was decided on has changed since: read again and decide again. */
export type Stale = "stale";

/** Each lost attempt was won by another change, so this many lost in a row are a fault and not bad luck. */
const maxAttempts = 200;

/**
 * Reads, decides and commits under optimistic concurrency: once, and again for as long as the commit finds that what was
 * read has changed. `attempt` returns `stale` then, and otherwise the result. Throws when 200 attempts in a row were stale.
 */
export async function retryWhileStale<T>(attempt: () => Promise<T | Stale>): Promise<T> {
  for (let attempts = 0; attempts < maxAttempts; attempts += 1) {
    const result = await attempt();
    if (result !== "stale") return result;
  }
  throw new Error(`A change was not committed: what it depends on changed ${maxAttempts} times in between.`);
}
