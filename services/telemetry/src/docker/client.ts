import { type IncomingMessage, type RequestOptions, request } from "node:http";
import { json, text } from "node:stream/consumers";

/** How long the engine may take to begin an answer. */
const answerTimeoutMs = 30_000;

/** Plain GETs on a Docker-compatible engine, whose long answers are streams that can be left unread. */
export interface DockerClient {
  /** The answer's JSON; undefined for 404. Throws for any other failure. */
  getJson(path: string, query?: Query, signal?: AbortSignal): Promise<unknown>;
  /** The answer as a stream, ended by the signal; undefined for 404 and 409 (a container on its way out). */
  getStream(path: string, query: Query, signal: AbortSignal): Promise<IncomingMessage | undefined>;
}

type Query = Record<string, string>;

/** A client for `docker:///path/to.sock` or `docker://host:port`, or DOCKER_HOST's forms `unix://` and `tcp://`. */
export function createDockerClient(address: string): DockerClient {
  const target = parseAddress(address);

  function get(path: string, query: Query, signal: AbortSignal | undefined): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const outgoing = request(
        {
          ...target,
          path: `${path}?${new URLSearchParams(query)}`,
          headers: { host: "docker" },
          // No connection is shared: one held back by a slow reader must not hold up another call.
          agent: false,
          ...(signal && { signal }),
        },
        (answer) => {
          clearTimeout(timer);
          resolve(answer);
        },
      );
      const timer = setTimeout(
        () => outgoing.destroy(new Error("The engine did not answer in time.")),
        answerTimeoutMs,
      );
      outgoing.on("error", (error) => {
        clearTimeout(timer);
        reject(error);
      });
      outgoing.end();
    });
  }

  async function refuse(path: string, answer: IncomingMessage): Promise<never> {
    throw new Error(`The engine answered ${answer.statusCode} to ${path}: ${(await text(answer)).trim()}`);
  }

  return {
    async getJson(path, query = {}, signal) {
      const answer = await get(path, query, signal);
      if (answer.statusCode === 404) {
        answer.resume();
        return undefined;
      }
      return answer.statusCode === 200 ? await json(answer) : await refuse(path, answer);
    },
    async getStream(path, query, signal) {
      const answer = await get(path, query, signal);
      if (answer.statusCode === 404 || answer.statusCode === 409) {
        answer.resume();
        return undefined;
      }
      return answer.statusCode === 200 ? answer : await refuse(path, answer);
    },
  };
}

function parseAddress(address: string): RequestOptions {
  const url = URL.parse(address);
  if (url && ["docker:", "unix:"].includes(url.protocol) && url.host === "" && url.pathname.length > 1) {
    return { socketPath: decodeURIComponent(url.pathname) };
  }
  if (url && ["docker:", "tcp:"].includes(url.protocol) && url.hostname !== "") {
    return { host: url.hostname, port: Number(url.port || 2375) };
  }
  throw new Error(
    `not an engine's address: ${address} (docker:///path, unix:///path, docker://host:port, tcp://host:port)`,
  );
}
