/** The response with a body that can be read up to so many bytes; reading on fails. */
export function limitResponse(response: Response, maxBytes: number): Response {
  let bytes = 0;
  const limited = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.length;
      if (bytes > maxBytes) controller.error(new Error(`The response has more than ${maxBytes} bytes.`));
      else controller.enqueue(chunk);
    },
  });
  return new Response(response.body?.pipeThrough(limited) ?? null, response);
}
