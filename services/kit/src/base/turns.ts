import { setImmediate as nextTurn } from "node:timers/promises";

/** How long one turn of the event loop may be held up, unless by a few items: what ends soon is not put off. */
const maxTurnMs = 5;
const fewItems = 16;

/** The turn that goes on, of all that asks in this process. */
let turn: { endsMs: number; items: number; over: Promise<void> } | undefined;

/**
 * Passes items on, and lets the event loop turn once those of all streams have taken 5 ms: items that are there already
 * would keep it from timers and sockets until the last one. Streams that wait go on together, an item of each at a time.
 */
export async function* inTurns<T>(items: AsyncIterable<T>): AsyncGenerator<T> {
  for await (const item of items) {
    turn ??= beginTurn();
    turn.items++;
    if (turn.items > fewItems && performance.now() >= turn.endsMs) await turn.over;
    yield item;
  }
}

function beginTurn() {
  const over = nextTurn().then(() => {
    turn = undefined;
  });
  return { endsMs: performance.now() + maxTurnMs, items: 0, over };
}
