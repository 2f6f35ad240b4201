import { Duplex } from "node:stream";
import WebSocket from "ws";
import type { Api } from "./api.ts";

// The protocol of `pods/exec` over WebSocket: the first byte of each message is its channel. The library's client has no
// back-pressure in either direction.

const channels = { stdin: 0, stdout: 1, stderr: 2, status: 3, close: 255 } as const;
/** v5 can end the standard input alone, and is that of Kubernetes 1.30 and later. */
const withClose = "v5.channel.k8s.io";
const protocols = [withClose, "v4.channel.k8s.io"];
/** Bytes of its error output that are kept. */
const maxErrorBytes = 4_096;

/** Why a program ended: its exit code, or null and the node's words where it could not be started. */
export interface ExecEnd {
  exitCode: number | null;
  words: string;
}

/**
 * Runs a program in a container of a pod, with the image's user, folder and environment; the stream is its standard
 * input and output, which ends with it. `explainEnd` makes the error of a stream that ends without any output. Throws
 * an ApiError, what kept the connection from being opened, or the reason of the signal, which no longer counts once
 * the stream is open.
 */
export async function openExec(
  api: Api,
  { namespace, pod, container }: { namespace: string; pod: string; container: string },
  command: readonly string[],
  o: { signal: AbortSignal; explainEnd(end: ExecEnd): Error },
): Promise<Duplex> {
  const query = new URLSearchParams({ container, stdin: "true", stdout: "true", stderr: "true" });
  for (const word of command) query.append("command", word);
  const path = `/api/v1/namespaces/${namespace}/pods/${pod}/exec`;
  return new ExecStream(await api.openSocket(path, query, protocols, o.signal), o.explainEnd);
}

class ExecStream extends Duplex {
  readonly #socket: WebSocket;
  readonly #explainEnd: (end: ExecEnd) => Error;
  #hasOutput = false;
  #hasEnded = false;
  #errorOutput = "";

  constructor(socket: WebSocket, explainEnd: (end: ExecEnd) => Error) {
    super();
    this.#socket = socket;
    this.#explainEnd = explainEnd;
    socket.on("message", (message: Buffer) => this.#receive(message));
    socket.on("error", (error) => this.destroy(error));
    socket.on("close", () => {
      if (this.#hasEnded) this.end();
      else this.destroy(new Error("the connection to the API server was lost"));
    });
  }

  #receive(message: Buffer): void {
    const content = message.subarray(1);
    if (content.length === 0) return;
    switch (message[0]) {
      case channels.stdout:
        this.#hasOutput = true;
        if (!this.push(content)) this.#socket.pause();
        break;
      case channels.stderr:
        this.#errorOutput += content.toString("utf8", 0, maxErrorBytes - this.#errorOutput.length);
        break;
      case channels.status:
        this.#hasEnded = true;
        if (this.#hasOutput) this.push(null);
        else this.destroy(this.#explainEnd(readEnd(content, this.#errorOutput)));
        break;
    }
  }

  override _read(): void {
    this.#socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#send([chunk], done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    this.#send(
      chunks.map(({ chunk }) => chunk),
      done,
    );
  }

  /** Calls back once the connection has taken it. */
  #send(chunks: readonly Buffer[], done: (error?: Error | null) => void): void {
    this.#socket.send(Buffer.concat([Buffer.of(channels.stdin), ...chunks]), done);
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.#socket.readyState === WebSocket.OPEN && this.#socket.protocol === withClose) {
      this.#socket.send(Buffer.of(channels.close, channels.stdin), done);
    } else {
      this.#socket.close();
      done();
    }
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket.terminate();
    done(error);
  }
}

/** Reads the Status that comes last. */
function readEnd(content: Buffer, errorOutput: string): ExecEnd {
  try {
    const { status, message, details } = JSON.parse(content.toString()) as {
      status?: string;
      message?: string;
      details?: { causes?: { reason?: string; message?: string }[] };
    };
    const code = details?.causes?.find(({ reason }) => reason === "ExitCode")?.message;
    const exitCode = status === "Success" ? 0 : code === undefined ? null : Number(code);
    return { exitCode, words: exitCode === null ? (message ?? "") : errorOutput };
  } catch {
    return { exitCode: null, words: content.toString("utf8", 0, maxErrorBytes) };
  }
}
