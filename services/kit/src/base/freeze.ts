/**
 * Freezes an object and everything in it except bytes, which can't be frozen. A frozen object is assumed to be frozen
 * throughout.
 */
export function deepFreeze<T extends object>(value: T): T {
  if (Object.isFrozen(value) || ArrayBuffer.isView(value)) return value;
  Object.freeze(value);
  // `Object.values` would make an array of each object, which messages have many of.
  for (const key in value) {
    const each = value[key];
    if (typeof each === "object" && each !== null) deepFreeze(each);
  }
  return value;
}

/**
 * Returns the same function with a cache: for an object that `deepFreeze` has frozen it returns its first result again,
 * frozen too, for as long as the object is in use.
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
