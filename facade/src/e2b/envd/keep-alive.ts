/** Passes events on, and yields `ping()` each time that none came for so long. */
export async function* keepAlive<T>(events: AsyncGenerator<T>, everyMs: number, ping: () => T): AsyncGenerator<T> {
  const silence = Symbol("silence");
  try {
    for (let next = events.next(); ; ) {
      let timer: NodeJS.Timeout | undefined;
      const quiet = new Promise<typeof silence>((resolve) => {
        timer = setTimeout(resolve, everyMs, silence);
      });
      const first = await Promise.race([next, quiet]).finally(() => clearTimeout(timer));
      if (first === silence) {
        yield ping();
      } else {
        if (first.done) return;
        yield first.value;
        next = events.next();
      }
    }
  } finally {
    await events.return(undefined);
  }
}
