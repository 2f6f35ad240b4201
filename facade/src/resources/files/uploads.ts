import type { FastifyRequest } from "fastify";

/** The length of a body, where the client tells it. */
export function sizeOf({ headers }: FastifyRequest): { size?: bigint } {
  const { "content-length": length } = headers;
  return length === undefined ? {} : { size: BigInt(length) };
}

/** The messages of an upload. `commit` comes once all chunks have. */
export async function* toParts<Start>(start: Start, chunks: AsyncIterable<Uint8Array>) {
  yield { part: { case: "start" as const, value: start } };
  for await (const value of chunks) yield { part: { case: "data" as const, value } };
  yield { part: { case: "commit" as const, value: true } };
}
