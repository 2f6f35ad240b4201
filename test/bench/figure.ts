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
