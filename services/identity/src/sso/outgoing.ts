import type { FetchBody } from "openid-client";

/** How long a provider may take for one response. */
export const providerTimeoutMs = 5_000;
/** How long a response may be. Key sets and lists of addresses have some kilobytes. */
const maxResponseBytes = 1024 * 1024;

/** Sends a request to a provider. */
export type Fetch = (
  url: string,
  options: Omit<RequestInit, "body" | "signal"> & { body?: FetchBody; signal?: AbortSignal | undefined },
) => Promise<Response>;

/** Providers are named by the operator, so they may be at any address. Reading a response fails once it is too long. */
export const fetchFromProvider: Fetch = async (url, { body = null, signal = null, ...options }) => {
  const response = await fetch(url, { ...options, body, signal });
  return new Response(response.body?.pipeThrough(limitBytes(maxResponseBytes)) ?? null, response);
};

function limitBytes(limit: number): TransformStream<Uint8Array, Uint8Array> {
  let bytes = 0;
  return new TransformStream({
    transform(chunk, controller) {
      bytes += chunk.length;
      if (bytes > limit) controller.error(new Error(`The response has more than ${limit} bytes.`));
      else controller.enqueue(chunk);
    },
  });
}
