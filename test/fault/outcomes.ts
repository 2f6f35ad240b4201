import type { Client } from "../conformance/client.ts";

/** How requests ended that were sent by a client. */
export interface Outcomes {
  /** The client, whose requests are counted. */
  client: Client;
  requests: number;
  /** Of answers of 500 and above and of those that did not come, how many there were, by what went wrong. */
  failures: Record<string, number>;
}

export function countOutcomes(client: Client): Outcomes {
  const outcomes: Outcomes = {
    requests: 0,
    failures: {},
    client: {
      get url() {
        return client.url;
      },
      send,
      get: (path, options) => send("GET", path, options),
      post: (path, body, options) => send("POST", path, { ...options, body }),
      put: (path, body, options) => send("PUT", path, { ...options, body }),
      delete: (path, options) => send("DELETE", path, options),
    },
  };

  async function send(...[method, path, options]: Parameters<Client["send"]>): ReturnType<Client["send"]> {
    outcomes.requests++;
    try {
      const answer = await client.send(method, path, options);
      if (answer.status >= 500)
        countFailure(
          outcomes,
          `${method} ${answer.status} ${answer.body?.error?.code}: ${answer.body?.error?.message}`,
        );
      return answer;
    } catch (error) {
      countFailure(outcomes, `${method} ${causeOf(error)}`);
      throw error;
    }
  }
  return outcomes;
}

export function countFailure({ failures }: Pick<Outcomes, "failures">, kind: string): void {
  failures[kind] = (failures[kind] ?? 0) + 1;
}

/** What `fetch` was stopped by. */
export function causeOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error.cause !== undefined) return causeOf(error.cause);
  return "code" in error ? `${error.code}: ${error.message}` : error.message;
}
