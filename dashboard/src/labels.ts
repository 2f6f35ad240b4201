/** Reads `key=value`, whatever the value is. Undefined when there is no key. */
export function parseLabel(text: string): Record<string, string> | undefined {
  const at = text.indexOf("=");
  return at < 1 ? undefined : { [text.slice(0, at)]: text.slice(at + 1) };
}

/** Reads `key=value` pairs, separated by spaces, commas or lines. Undefined when a part is none. */
export function parseLabels(text: string): Record<string, string> | undefined {
  const labels: Record<string, string> = {};
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const label = parseLabel(part);
    if (!label) return undefined;
    Object.assign(labels, label);
  }
  return labels;
}

export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(" ");
}
