import { Duplex } from "node:stream";
import { type Container, callEngine, openStream } from "./client.ts";

/** Bytes of its error output that are kept. */
const maxErrorBytes = 4_096;
const frameHeaderBytes = 8;
const stdout = 1;
/**
 * How the first output begins when the engine tells there, with an exit code of 126 or 127, why it could not start the
 * program. The words are those of containerd's shims, for runc and crun as for gVisor.
 */
const startFailure = Buffer.from("OCI runtime exec failed");

/**
 * Runs a program in a container, with the image's user, folder and environment; the stream is its standard input and
 * output, which ends with it. `explainEnd` makes the error of a stream that ends without any output, from the program's
 * exit code and error output, or what the engine says of one that could not be started. Throws the engine's error, or
 * the reason of the signal, which no longer counts once the stream is open.
 */
export async function openExec(
  container: Container,
  command: readonly string[],
  o: { signal: AbortSignal; explainEnd(exitCode: number | null, errorOutput: string): Error },
): Promise<Duplex> {
  const exec = await callEngine(
    (abortSignal) =>
      container.exec({
        Cmd: [...command],
        AttachStdin: true,
        AttachStdout: true,
        AttachStderr: true,
        abortSignal,
      }),
    { signal: o.signal },
  );
  const opening = new AbortController();
  const abort = () => opening.abort(o.signal.reason);
  o.signal.addEventListener("abort", abort, { once: true });
  try {
    const connection = await openStream(
      (abortSignal) => exec.start({ hijack: true, stdin: true, abortSignal }),
      opening.signal,
    );
    return new ExecStream(connection, async (errorOutput) => {
      const { ExitCode: exitCode } = await callEngine((abortSignal) => exec.inspect({ abortSignal }));
      return o.explainEnd(exitCode, errorOutput);
    });
  } finally {
    o.signal.removeEventListener("abort", abort);
  }
}

/** The program's side of a hijacked connection, which carries its output in frames. */
class ExecStream extends Duplex {
  readonly #connection: Duplex;
  #header = Buffer.alloc(0);
  #left = 0;
  #isOutput = false;
  #hasOutput = false;
  /** Of the first output, what may be the engine's word. Undefined once that is known. */
  #first: Buffer | undefined = Buffer.alloc(0);
  #isFailure = false;
  #errorOutput = "";

  constructor(connection: Duplex, explainEnd: (errorOutput: string) => Promise<Error>) {
    super();
    this.#connection = connection;
    connection.on("data", (chunk: Buffer) => this.#receive(chunk));
    connection.on("error", (error) => this.destroy(error));
    connection.on("end", () => {
      if (this.#hasOutput) this.push(null);
      else {
        explainEnd(this.#errorOutput).then(
          (error) => this.destroy(error),
          (error: unknown) => this.destroy(error instanceof Error ? error : new Error(String(error))),
        );
      }
    });
    connection.pause();
  }

  #receive(chunk: Buffer): void {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#left === 0) {
        const missing = frameHeaderBytes - this.#header.length;
        this.#header = Buffer.concat([this.#header, rest.subarray(0, missing)]);
        rest = rest.subarray(missing);
        if (this.#header.length < frameHeaderBytes) return;
        this.#isOutput = this.#header[0] === stdout;
        this.#left = this.#header.readUInt32BE(4);
        this.#header = Buffer.alloc(0);
        continue;
      }
      const part = rest.subarray(0, this.#left);
      rest = rest.subarray(part.length);
      this.#left -= part.length;
      this.#take(part);
    }
  }

  #take(part: Buffer): void {
    if (!this.#isOutput || this.#isFailure) this.#takeError(part);
    else if (this.#first) this.#takeFirst(Buffer.concat([this.#first, part]));
    else this.#takeOutput(part);
  }

  #takeFirst(output: Buffer): void {
    const isAlike = startFailure.subarray(0, output.length).equals(output.subarray(0, startFailure.length));
    const isWhole = output.length >= startFailure.length;
    // The engine's words come in one frame.
    if (isAlike && !isWhole && this.#left > 0) {
      this.#first = output;
      return;
    }
    this.#first = undefined;
    this.#isFailure = isAlike && isWhole;
    if (this.#isFailure) this.#takeError(output);
    else this.#takeOutput(output);
  }

  #takeOutput(part: Buffer): void {
    this.#hasOutput = true;
    if (!this.push(part)) this.#connection.pause();
  }

  #takeError(part: Buffer): void {
    if (this.#errorOutput.length < maxErrorBytes) {
      this.#errorOutput += part.toString("utf8", 0, maxErrorBytes - this.#errorOutput.length);
    }
  }

  override _read(): void {
    this.#connection.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#connection.write(chunk, done);
  }

  override _writev(chunks: { chunk: Buffer }[], done: (error?: Error | null) => void): void {
    const last = chunks.pop();
    this.#connection.cork();
    for (const { chunk } of chunks) this.#connection.write(chunk);
    this.#connection.write(last?.chunk ?? "", done);
    this.#connection.uncork();
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#connection.end(done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#connection.destroy();
    done(error);
  }
}
