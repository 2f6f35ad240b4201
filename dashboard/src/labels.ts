/** Reads `key=value`, whatever the value is. Undefined when there is no key. */
export function parseLabel(text: string): Record<string, string> | undefined {
  const at = text.indexOf("=");
  return at < 1 ? undefined : { [text.slice(0, at)]: text.slice(at + 1) };
}

const quoted = String.raw`"(?:[^"\\]|\\.)*"`;
const labelPattern = new RegExp(String.raw`(?<![^\s,])(${quoted}|[^\s,="]+)=(${quoted}|[^\s,"]*)(?![^\s,])`, "g");
const quoteIf = (special: RegExp, part: string) => (special.test(part) ? JSON.stringify(part) : part);
const unquote = (part: string) => (part.startsWith('"') ? String(JSON.parse(part)) : part);

/**
 * Reads `key=value` pairs, separated by spaces, commas or lines; a key or a value that has one of these is in quotes, as
 * in JSON. Undefined when a part is none.
 */
export function parseLabels(text: string): Record<string, string> | undefined {
  const labels: Record<string, string> = {};
  try {
    const rest = text.replace(labelPattern, (_, key: string, value: string) => {
      labels[unquote(key)] = unquote(value);
      return "";
    });
    return /^[\s,]*$/.test(rest) ? labels : undefined;
  } catch {
    // JSON has no such escape.
    return undefined;
  }
}

/** Labels as they are read. */
export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${quoteIf(/[\s,="]/, key)}=${quoteIf(/[\s,"]/, value)}`)
    .join(" ");
}
