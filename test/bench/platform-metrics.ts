import { sum } from "./figure.ts";

/** The values of a metric of the platform by their labels, as Prometheus prints them. */
export async function readMetric({ adminUrl }: { adminUrl: string }, name: string): Promise<Map<string, number>> {
  const text = await (await fetch(`${adminUrl}/metrics`)).text();
  const values = text.matchAll(new RegExp(`^${name}(?:\\{(.*)\\})? (\\S+)$`, "gm"));
  return new Map([...values].map(([, labels = "", value]) => [labels, Number(value)]));
}

/**
 * How much a counter rose each second between two readings, in all, and as text: the busiest labels first, named by
 * `nameOf`, with so many digits.
 */
export function ratesBetween(
  before: ReadonlyMap<string, number>,
  after: ReadonlyMap<string, number>,
  { ms, digits, nameOf }: { ms: number; digits: number; nameOf(labels: string): string },
): { total: number; text: string } {
  const rates = [...after].map(([labels, count]) => ({
    name: nameOf(labels),
    perSecond: ((count - (before.get(labels) ?? 0)) * 1000) / ms,
  }));
  const text = rates
    .filter(({ perSecond }) => perSecond > 0)
    .sort((a, b) => b.perSecond - a.perSecond)
    .map(({ name, perSecond }) => `${name} ${perSecond.toFixed(digits)}`)
    .join(", ");
  return { total: sum(rates.map(({ perSecond }) => perSecond)), text };
}
