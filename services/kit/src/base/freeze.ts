/** Freezes an object and all in it but bytes, which can't be. One that is frozen is taken to be so all through. */
export function deepFreeze<T extends object>(value: T): T {
  if (Object.isFrozen(value) || ArrayBuffer.isView(value)) return value;
  Object.freeze(value);
  for (const part of Object.values(value)) if (typeof part === "object" && part !== null) deepFreeze(part);
  return value;
}

/**
 * The same function, which remembers what it made of each object that `deepFreeze` has frozen, as long as that is in use, and
 * returns it again, frozen too.
 */
export function rememberFrozen<T extends object, R extends object>(make: (value: T) => R): (value: T) => R {
  const made = new WeakMap<T, R>();
  return (value) => {
    if (!Object.isFrozen(value)) return make(value);
    const known = made.get(value);
    if (known) return known;
    const result = deepFreeze(make(value));
    made.set(value, result);
    return result;
  };
}
