import { once } from "node:events";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";

/** A WebSocket that is attached to a process. */
export interface ProcessSocket {
  readonly protocol: string;
  /** Output so far: of stdout and terminals, and of stderr. */
  output(stream?: 1 | 2): string;
  /** The bytes of all output so far. */
  readonly bytes: number;
  /** The text frames so far. */
  // biome-ignore lint/suspicious/noExplicitAny: a frame is what the test expects it to be
  readonly frames: readonly any[];
  /** What was last, a binary frame or a text. */
  readonly last: "output" | "text" | undefined;
  type(text: string): void;
  tell(frame: object): void;
  /** Sends bytes as they are. */
  raw(data: Uint8Array | string): void;
  says(text: string | RegExp): Promise<void>;
  readonly closed: Promise<{ code: number; reason: string }>;
  close(): void;
}

// Node's own client takes headers too, which its types don't have.
const Client = WebSocket as unknown as new (
  address: string,
  options: { headers: Record<string, string>; protocols?: string[] },
) => WebSocket;

/** Opens a socket; throws when it is refused. */
export async function openSocket(
  url: string,
  o: { headers?: Record<string, string>; protocols?: string[] } = {},
): Promise<ProcessSocket> {
  const { headers = {}, protocols = ["sandgate.process.v1"] } = o;
  const socket = new Client(url.replace(/^http/, "ws"), { headers, protocols });
  socket.binaryType = "arraybuffer";
  const chunks: { 1: Buffer[]; 2: Buffer[] } = { 1: [], 2: [] };
  const frames: unknown[] = [];
  let bytes = 0;
  let last: "output" | "text" | undefined;
  socket.addEventListener("message", ({ data }) => {
    last = typeof data === "string" ? "text" : "output";
    if (typeof data === "string") {
      frames.push(JSON.parse(data));
      return;
    }
    const frame = Buffer.from(data as ArrayBuffer);
    bytes += frame.length - 1;
    chunks[frame[0] === 2 ? 2 : 1].push(frame.subarray(1));
  });
  const closed = new Promise<{ code: number; reason: string }>((resolve) => {
    socket.addEventListener("close", ({ code, reason }) => resolve({ code, reason }));
  });
  await Promise.race([
    once(socket, "open"),
    once(socket, "error").then(() => {
      throw new Error("the socket was refused");
    }),
  ]);
  const output = (stream: 1 | 2 = 1) => Buffer.concat(chunks[stream]).toString();
  return {
    protocol: socket.protocol,
    output,
    get bytes() {
      return bytes;
    },
    frames,
    get last() {
      return last;
    },
    type: (text) => socket.send(Buffer.concat([Buffer.of(0), Buffer.from(text)])),
    tell: (frame) => socket.send(JSON.stringify(frame)),
    raw: (data) => socket.send(data as string),
    says: (text) => until(() => expect(output()).toMatch(text)),
    closed,
    close: () => socket.close(),
  };
}
