import { ConnectionFailed } from "./errors.ts";
import { delay, steadyMs } from "./time.ts";

/** A server-sent event. */
export interface ServerEvent {
  id: string | undefined;
  event: string;
  data: string;
}

/** An id without an event: where the stream is, before anything has come. */
interface Position {
  id: string;
  data: undefined;
}

/** The server sends a comment every 15 s, so a stream that is silent for longer than this has broken off. */
const silentMs = 45_000;
const maxFailures = 3;
const firstDelayMs = 250;

/**
 * Follows a stream of events, and opens it again where it broke off. `open` gets the last id that came, with an event
 * that was handed on or alone. Ends after an event that `isLast`; throws what `open` throws, and ConnectionFailed
 * when the stream breaks off again and again with nothing new.
 */
export async function* followEvents(o: {
  open(lastId: string | undefined, signal: AbortSignal): Promise<Response>;
  isLast(event: ServerEvent): boolean;
  lastId?: string | undefined;
  /** Whether it is opened again where it broke off, after the last id if there has been one; always by default. */
  mayReopen?: ((lastId: string | undefined) => Promise<boolean>) | undefined;
  signal?: AbortSignal | undefined;
}): AsyncGenerator<ServerEvent, void> {
  const { open, isLast, mayReopen, signal } = o;
  let { lastId } = o;
  for (let failures = 0; ; failures++) {
    const openedMs = performance.now();
    const connection = new AbortController();
    const either = signal ? AbortSignal.any([signal, connection.signal]) : connection.signal;
    let cause: unknown;
    try {
      const response = await open(lastId, either);
      for await (const event of readEvents(response, connection)) {
        signal?.throwIfAborted();
        lastId = event.id ?? lastId;
        if (event.data === undefined) continue;
        failures = 0;
        yield event;
        if (isLast(event)) return;
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (!(error instanceof BrokenOff)) throw error;
      cause = error.cause;
    } finally {
      connection.abort();
    }
    if (mayReopen && !(await mayReopen(lastId))) return;
    if (performance.now() - openedMs > steadyMs) failures = 0;
    if (failures >= maxFailures) throw new ConnectionFailed("A stream broke off again and again.", { cause });
    await delay(firstDelayMs * 2 ** failures * (0.5 + Math.random() / 2), signal);
  }
}

/** A stream of events ended before its last one. */
class BrokenOff extends Error {}

/** The events and positions of an answer until it ends. Throws BrokenOff when the connection does. */
async function* readEvents({ body }: Response, connection: AbortController): AsyncGenerator<ServerEvent | Position> {
  if (!body) return;
  const parser = createParser();
  const reader = body.getReader();
  try {
    for (;;) {
      const silent = setTimeout(() => connection.abort(new Error("The stream is silent.")), silentMs);
      const { done, value } = await reader.read().finally(() => clearTimeout(silent));
      if (done) return;
      yield* parser(value);
    }
  } catch (cause) {
    throw new BrokenOff("A stream broke off.", { cause });
  }
}

/** A parser of the format that the HTML standard defines, for bytes as they come. */
function createParser(): (chunk: Uint8Array) => (ServerEvent | Position)[] {
  const decoder = new TextDecoder();
  let rest = "";
  let fields: { id?: string; event?: string; data?: string } = {};
  return (chunk) => {
    const events: (ServerEvent | Position)[] = [];
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const each of lines) {
      const line = each.endsWith("\r") ? each.slice(0, -1) : each;
      if (line === "") {
        const { id, event = "message", data } = fields;
        if (data !== undefined) events.push({ id, event, data });
        else if (id !== undefined) events.push({ id, data });
        fields = {};
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(line.charAt(colon + 1) === " " ? colon + 2 : colon + 1);
      if (name === "id") fields.id = value;
      if (name === "event") fields.event = value;
      if (name === "data") fields.data = fields.data === undefined ? value : `${fields.data}\n${value}`;
    }
    return events;
  };
}
