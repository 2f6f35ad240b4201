/** A server-sent event with JSON data. */
export interface StreamEvent {
  id: string;
  event: string;
  // biome-ignore lint/suspicious/noExplicitAny: the data is what the test expects it to be
  data: any;
}

/** Asks for a stream of events, of those after the one with `lastId` if that is given; with a body by POST. */
export function openEventStream(
  url: string,
  o: { token: string; workspace: string; lastId?: string | undefined; body?: object; signal?: AbortSignal },
): Promise<Response> {
  return fetch(url, {
    ...(o.body && { method: "POST", body: JSON.stringify(o.body) }),
    headers: {
      accept: "text/event-stream",
      ...(o.body && { "content-type": "application/json" }),
      authorization: `Bearer ${o.token}`,
      "x-workspace-id": o.workspace,
      ...(o.lastId !== undefined && { "last-event-id": o.lastId }),
    },
    ...(o.signal && { signal: o.signal }),
  });
}

/** The events of an answer as they come, until the server ends it. Comments are left out. */
export async function* readEvents({ body }: Response): AsyncGenerator<StreamEvent> {
  let text = "";
  for await (const chunk of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const blocks = `${text}${chunk}`.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const fields = Object.fromEntries(
        block
          .split("\n")
          .filter((line) => !line.startsWith(":"))
          .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trimStart()]),
      );
      if (fields.data === undefined) continue;
      yield { id: fields.id ?? "", event: fields.event ?? "", data: JSON.parse(fields.data) };
    }
  }
}
