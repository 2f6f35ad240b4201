/** Freezes an object and all in it but bytes, which can't be. */
export function deepFreeze<T extends object>(value: T): T {
  if (Object.isFrozen(value) || ArrayBuffer.isView(value)) return value;
  Object.freeze(value);
  for (const part of Object.values(value)) if (typeof part === "object" && part !== null) deepFreeze(part);
  return value;
}
