import { isDatabaseUnreachable } from "./database-unreachable.ts";

interface Waiting<T> {
  item: T;
  resolve(): void;
  reject(error: unknown): void;
}

/**
 * Returns a function that commits an item together with the others that are given while an earlier commit is running.
 * So many callers who would wait for one another's commits, as at a document that all of them write, need few. When a
 * commit fails, each of its items is committed alone and fails for its own reason, unless the database can't be
 * reached.
 */
export function createGroupCommit<T>(
  commit: (items: readonly T[]) => Promise<void>,
  maxItems: number,
): (item: T) => Promise<void> {
  const waiting: Waiting<T>[] = [];
  let isRunning = false;

  async function commitGroup(group: readonly Waiting<T>[]): Promise<void> {
    try {
      await commit(group.map(({ item }) => item));
      for (const { resolve } of group) resolve();
    } catch (error) {
      const [first, ...others] = group;
      if (others.length === 0 || isDatabaseUnreachable(error)) {
        for (const { reject } of group) reject(error);
      } else if (first) {
        for (const each of group) await commitGroup([each]);
      }
    }
  }

  async function commitAll(): Promise<void> {
    isRunning = true;
    while (waiting.length > 0) await commitGroup(waiting.splice(0, maxItems));
    isRunning = false;
  }

  return (item) =>
    new Promise((resolve, reject) => {
      waiting.push({ item, resolve, reject });
      if (!isRunning) void commitAll();
    });
}
