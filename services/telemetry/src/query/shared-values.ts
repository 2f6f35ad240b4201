/** Values that are made once for all who use them at the same time. */
export interface SharedValues<T> {
  /** Makes a key's value unless somebody uses it. `leave` ends the use, and may be called twice. */
  use(key: string, make: () => Promise<T>): { value: Promise<T>; leave(): void };
}

export function createSharedValues<T>(): SharedValues<T> {
  const used = new Map<string, { value: Promise<T>; users: Set<symbol> }>();
  return {
    use(key, make) {
      const shared = used.get(key) ?? { value: make(), users: new Set() };
      const user = Symbol(key);
      used.set(key, shared);
      shared.users.add(user);
      return {
        value: shared.value,
        leave() {
          if (shared.users.delete(user) && shared.users.size === 0) used.delete(key);
        },
      };
    },
  };
}
