/** Fields whose own keys are the user's words. */
const maps = new Set(["labels", "env", "dependencies"]);

/** The API's JSON with the client's names: `expires_at` becomes `expiresAt`. */
export function toCamelCase<T>(value: unknown): T {
  // The generated types describe what comes of this.
  return rename(value, (name) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())) as T;
}

/** The client's fields with the API's names. */
export function toSnakeCase(value: unknown): unknown {
  return rename(value, snakeName);
}

/** `recaptchaToken` alone has this form in the API too. */
export function snakeName(name: string): string {
  return name === "recaptchaToken" ? name : name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function rename(value: unknown, nameOf: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((each) => rename(each, nameOf));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, part]) => [nameOf(key), maps.has(key) ? part : rename(part, nameOf)]),
  );
}
