import { compareRounds, type Figure, median } from "./figure.ts";

/** Undoes what a run has made. Its time doesn't count. */
export type Undo = () => Promise<unknown>;

interface Runs {
  ours(): Promise<Undo>;
  bare(): Promise<Undo>;
}

/** How long so many runs at once take, of what as many bare ones take, which follow each other in each round. */
export async function compare(what: string, aim: string, runs: Runs, amount: number, rounds: number): Promise<Figure> {
  const ours: number[] = [];
  const bare: number[] = [];
  // The first round only warms both up.
  for (let round = 0; round <= rounds; round++) {
    ours.push(await timeOf(runs.ours, amount));
    bare.push(await timeOf(runs.bare, amount));
  }
  const [measured, against] = [ours.slice(1), bare.slice(1)];
  const { value, span } = compareRounds(measured, against);
  const detail = `${median(measured).toFixed(0)} ms against ${median(against).toFixed(0)} ms; ${span}`;
  return { what, value, unit: "", aim, detail };
}

async function timeOf(run: () => Promise<Undo>, amount: number): Promise<number> {
  const startedAt = performance.now();
  const undos = await Promise.all(Array.from({ length: amount }, run));
  const ms = performance.now() - startedAt;
  await Promise.all(undos.map((undo) => undo()));
  return ms;
}
