import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type OnReadOpts, Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { mebibyte } from "@sandgate/kit/base/sizes";

/** What is read at once of what goes to the stream. */
const readBytes = mebibyte / 8;

/**
 * Two sockets that are connected with each other, as socketpair(2) makes them, which Node.js lacks. They meet in a folder
 * that no other user may enter, and which is gone once they have. What comes to the second is given to `onread`.
 */
async function openSocketPair(onread: OnReadOpts): Promise<[Socket, Socket]> {
  const folder = await mkdtemp(join(tmpdir(), "sandgate-"));
  const server = createServer();
  try {
    const path = join(folder, "pair");
    await new Promise<void>((resolve, reject) => server.once("error", reject).listen(path, resolve));
    const accepted = new Promise<Socket>((resolve) => server.once("connection", resolve));
    const second = await new Promise<Socket>((resolve, reject) => {
      const connecting = connect({ path, allowHalfOpen: true, onread }, () => resolve(connecting)).once(
        "error",
        reject,
      );
    });
    return [await accepted, second];
  } finally {
    server.close();
    await rm(folder, { recursive: true });
  }
}

/**
 * A socket that is the stream. Node's HTTP/2 fails assertions of its own, which end the process, when a stream that is no
 * socket breaks at the wrong moment, as a hostile peer can make it. Either one is destroyed with the other.
 */
export async function toSocket(stream: Duplex): Promise<Socket> {
  if (stream instanceof Socket) return stream;
  let inner: Socket | undefined;
  // Before the sockets have met, too: an error that nobody listens to ends the process.
  stream.on("error", () => inner?.destroy());
  const pair = await openSocketPair({
    // One buffer for all reads, since memory that is new for each takes much of the time of a large upload.
    buffer: Buffer.allocUnsafeSlow(readBytes),
    callback: (length, buffer) => {
      stream.write(buffer.subarray(0, length), () => inner?.resume());
      return false;
    },
  }).catch((error: unknown) => {
    stream.destroy();
    throw error;
  });
  const [socket] = pair;
  inner = pair[1];
  // The other end may not answer the end of the socket.
  socket.once("close", () => inner?.destroy());
  inner.once("end", () => stream.end());
  inner.on("error", () => stream.destroy());
  inner.once("close", () => stream.destroy());
  stream.once("close", () => inner?.destroy());
  if (stream.destroyed) inner.destroy();
  else stream.pipe(inner);
  return socket;
}
