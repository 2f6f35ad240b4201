import { LRUCache } from "lru-cache";

/** How many results a function remembers at most. */
const maxRemembered = 1_000;

/** Remembers what reads of a database have found since its last write. */
export interface Memory {
  /** Returns the same function with a memory: what it found for a key is remembered until a write begins. */
  remember<V extends NonNullable<unknown>>(find: (key: string) => V | undefined): (key: string) => V | undefined;
  /** Runs a write. Until it is answered nothing is remembered, since reads may or may not see it. */
  during<T>(write: () => Promise<T>): Promise<T>;
}

export function createMemory(): Memory {
  const memories: Pick<LRUCache<string, NonNullable<unknown>>, "size" | "clear">[] = [];
  let writes = 0;

  return {
    remember<V extends NonNullable<unknown>>(find: (key: string) => V | undefined) {
      const found = new LRUCache<string, V>({ max: maxRemembered });
      memories.push(found);
      return (key) => {
        const known = found.get(key);
        if (known !== undefined) return known;
        const value = find(key);
        if (value === undefined || writes > 0) return value;
        found.set(key, value);
        return value;
      };
    },
    async during(write) {
      writes++;
      for (const found of memories) if (found.size > 0) found.clear();
      try {
        return await write();
      } finally {
        writes--;
      }
    },
  };
}
