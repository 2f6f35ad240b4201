/**
 * Frees the memory of bytes that nobody reads any more, which otherwise waits for the next collection: what is read
 * meanwhile takes new memory, at several times the cost. Nothing happens to bytes that share their memory with others.
 * Not for what was written to a stream of HTTP/2: Node.js may call such a write done while its session still sends it.
 */
export function free({ buffer, byteLength }: Uint8Array): void {
  if (buffer instanceof ArrayBuffer && byteLength === buffer.byteLength) buffer.transfer(0);
}
