/** Waits until all of this has ended, whether or not some of it failed. Then rejects with the first failure. */
export async function endTogether(ending: readonly Promise<unknown>[]): Promise<void> {
  const outcomes = await Promise.allSettled(ending);
  const failed = outcomes.find((outcome) => outcome.status === "rejected");
  if (failed) throw failed.reason;
}

/**
 * Takes the steps of a shutdown one after the other, each whether or not the ones before it failed. Then rejects with
 * the first failure.
 */
export async function endInTurn(...steps: readonly (() => unknown)[]): Promise<void> {
  const taken: Promise<unknown>[] = [];
  for (const step of steps) {
    const ending = (async () => step())();
    taken.push(ending);
    await ending.catch(() => undefined);
  }
  await endTogether(taken);
}
