import pLimit from "p-limit";
import { isDatabaseUnreachable } from "./database-unreachable.ts";

interface Waiting<T, R> {
  item: T;
  signal: AbortSignal | undefined;
  resolve(result: R): void;
  reject(error: unknown): void;
}

/** Commits an item. An item whose signal aborts before its turn is not committed, and the signal's reason is thrown. */
export type GroupCommit<T, R> = (item: T, signal?: AbortSignal) => Promise<R>;

/**
 * Returns a function that commits an item together with those of the same key that are given while an earlier commit of
 * that key is running or waits for its turn. So many callers who would wait for one another's commits, as at a document
 * that all of them write, need few. When a commit fails, each of its items is committed alone and fails for its own
 * reason, unless the database can't be reached.
 */
export function createGroupCommit<T, R>(o: {
  /** Resolves with a result for each item, in their order. */
  commit(items: readonly T[]): Promise<readonly R[]>;
  /** The most items of a commit. */
  maxItems: number;
  /** Which items are committed together; without, all are. */
  keyOf?(item: T): string;
  /** The most commits at once, each of another key. Without a limit by default. */
  commitsAtOnce?: number;
}): GroupCommit<T, R> {
  const { commit, maxItems, keyOf = () => "" } = o;
  const waiting = new Map<string, Waiting<T, R>[]>();
  const limit = pLimit(o.commitsAtOnce ?? Number.POSITIVE_INFINITY);

  async function commitGroup(group: readonly Waiting<T, R>[]): Promise<void> {
    for (const { signal, reject } of group) if (signal?.aborted) reject(signal.reason);
    const wanted = group.filter(({ signal }) => !signal?.aborted);
    if (wanted.length === 0) return;
    try {
      const results = await commit(wanted.map(({ item }) => item));
      // There is one for each, so it is an R.
      wanted.forEach(({ resolve }, i) => void resolve(results[i] as R));
    } catch (error) {
      if (wanted.length === 1 || isDatabaseUnreachable(error)) {
        for (const { reject } of wanted) reject(error);
      } else {
        for (const each of wanted) await commitGroup([each]);
      }
    }
  }

  async function commitAll(key: string, queue: Waiting<T, R>[]): Promise<void> {
    // Keys take turns.
    while (queue.length > 0) await limit(() => commitGroup(queue.splice(0, maxItems)));
    waiting.delete(key);
  }

  return (item, signal) =>
    new Promise((resolve, reject) => {
      const key = keyOf(item);
      const queue = waiting.get(key) ?? [];
      queue.push({ item, signal, resolve, reject });
      if (waiting.has(key)) return;
      waiting.set(key, queue);
      void commitAll(key, queue);
    });
}
