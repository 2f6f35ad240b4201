/** One measured figure. */
export interface Figure {
  what: string;
  value: number;
  unit: string;
  /** Such as "at most 1.2". */
  aim: string;
  /** The measurements behind the figure. */
  detail: string;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

export function percentile(values: readonly number[], share: number): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN;
}

export function sum(values: Iterable<number>): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

/** The median of the ratios of each round, and how far they lie apart: "0.98 to 1.07 in 9 rounds". */
export function compareRounds(
  measured: readonly number[],
  against: readonly number[],
): { value: number; span: string } {
  const ratios = measured.map((value, round) => value / (against[round] ?? Number.NaN));
  const [least, most] = [Math.min(...ratios).toFixed(2), Math.max(...ratios).toFixed(2)];
  return { value: median(ratios), span: `${least} to ${most} in ${ratios.length} rounds` };
}
