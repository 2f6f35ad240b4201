/** Reads `key=value` pairs, separated by spaces, commas or lines. Undefined when a part is none. */
export function parseLabels(text: string): Record<string, string> | undefined {
  const labels: Record<string, string> = {};
  for (const part of text.split(/[\s,]+/).filter(Boolean)) {
    const at = part.indexOf("=");
    if (at < 1) return undefined;
    labels[part.slice(0, at)] = part.slice(at + 1);
  }
  return labels;
}

export function formatLabels(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(" ");
}
