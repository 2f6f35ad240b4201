import { isIP } from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { isUuid } from "@sandgate/kit/base/ids";
import type {
  ConnectRequestSchema,
  ConnectResponse,
  ListListeningResponse_Listener,
} from "@sandgate/proto/helper/v1/port";
import { createStallLimit } from "./bodies.ts";

/** How long the helper may take to connect; it tries two addresses for a second each. */
const connectMs = 5_000;
const maxListeners = 1_000;

/** A part of what a caller sends to a server. */
export type Part<Start> =
  | { case: "start"; value: Start }
  | { case: "data"; value: Uint8Array }
  | { case: "eof"; value: boolean }
  | { case: undefined; value?: undefined };

export type Parts<Start> = AsyncIterable<{ part: Part<Start> }>;

/** The first part, which says where to, and those that follow. */
export async function readStart<Start>(parts: Parts<Start>): Promise<{ start: Start; data: Parts<Start> }> {
  const messages = parts[Symbol.asyncIterator]();
  const first = await messages.next();
  if (first.done || first.value.part.case !== "start") throw invalid("start", "must come first");
  return { start: first.value.part.value, data: { [Symbol.asyncIterator]: () => messages } };
}

/** What connects by the helper: its calls, or a channel. */
interface PortClient {
  connect(
    requests: AsyncIterable<MessageInitShape<typeof ConnectRequestSchema>>,
    options: { signal: AbortSignal; timeoutMs: number },
  ): AsyncIterable<Pick<ConnectResponse, "part">>;
}

/**
 * Connects to a port inside, and yields `connected` and what comes from the server. Throws UPSTREAM_ERROR when the
 * helper doesn't connect in time.
 */
export async function* connectPort<Start>(
  openClient: (signal: AbortSignal) => Promise<PortClient>,
  o: { port: number; data: Parts<Start>; signal: AbortSignal },
) {
  const opening = createStallLimit(o.signal, connectMs);
  let isConnected = false;
  let hasEnded = false;
  try {
    const client = await openClient(opening.signal);
    const requests = toRequests(o.port, o.data);
    for await (const { part } of client.connect(requests, { signal: opening.signal, timeoutMs: 0 })) {
      if (part.case === "connected" && !isConnected) {
        isConnected = true;
        opening.stop();
        yield { part };
      } else if (!isConnected) {
        throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper sent data of no connection.");
      } else if (part.case === "eof" || (part.case === "data" && part.value.length > 0)) {
        hasEnded ||= part.case === "eof";
        yield { part };
      }
    }
  } catch (error) {
    // The server's end is the call's, and what the caller sends after it fails.
    if (hasEnded) return;
    throw opening.signal.aborted ? opening.signal.reason : error;
  } finally {
    opening.stop();
  }
}

async function* toRequests<Start>(port: number, data: Parts<Start>) {
  yield { part: { case: "port" as const, value: port } };
  for await (const { part } of data) {
    if (part.case === "eof") {
      yield { part };
      return;
    }
    if (part.case !== "data") throw invalid("data", "must follow");
    if (part.value.length > 0) yield { part };
  }
}

/** What the helper says of listeners, within the bounds of its contract. */
export function boundListeners(listeners: readonly ListListeningResponse_Listener[]): ListListeningResponse_Listener[] {
  return listeners.slice(0, maxListeners).map((listener) => {
    const { port, address, processId } = listener;
    if (port < 1 || port > 65_535 || isIP(address) === 0 || !(processId === "" || isUuid(processId))) {
      throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper told of a listener that can't be.");
    }
    return listener;
  });
}
