import { once } from "node:events";
import { Agent, createServer, type IncomingMessage, request as send } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";

/** What happens to a request and its answer. */
export type Fault = "request cut" | "answer cut" | "answer cut midway" | "answer late" | "request repeated";

/** Stands between clients and the API, and does harm to one request in so many. */
export interface FaultyNetwork {
  readonly url: string;
  /** How often each fault happened. */
  readonly happened: Readonly<Record<Fault, number>>;
  close(): Promise<void>;
}

const faults: readonly Fault[] = ["request cut", "answer cut", "answer cut midway", "answer late", "request repeated"];
const longestDelayMs = 300;
const longestCut = 3_000;

/** @param random gives numbers from 0 to 1, so that a run can be repeated */
export async function openFaultyNetwork(o: { url: string; random(): number; rate: number }): Promise<FaultyNetwork> {
  const { hostname, port } = new URL(o.url);
  const agent = new Agent({ keepAlive: true });
  const happened = Object.fromEntries(faults.map((fault) => [fault, 0])) as Record<Fault, number>;

  function choose({ method, headers }: IncomingMessage): Fault | undefined {
    if (o.random() >= o.rate) return undefined;
    const chosen = faults[Math.floor(o.random() * faults.length)];
    // A network repeats what it may; the sender of anything else would have to allow it.
    const mayRepeat = method !== "POST" || headers["idempotency-key"] !== undefined;
    return chosen === "request repeated" && !mayRepeat ? undefined : chosen;
  }

  function forward({ method, url, headers }: IncomingMessage, body: Buffer): Promise<IncomingMessage> {
    return new Promise((resolve, reject) => {
      const outgoing = send({ hostname, port, agent, method, path: url, headers }, resolve);
      outgoing.on("error", reject);
      outgoing.end(body);
    });
  }

  const server = createServer(async (incoming, outgoing) => {
    const fault = choose(incoming);
    if (fault) happened[fault] += 1;
    if (fault === "request cut") return void incoming.socket.destroy();
    try {
      const chunks: Buffer[] = [];
      for await (const chunk of incoming) chunks.push(chunk);
      const body = Buffer.concat(chunks);
      if (fault === "request repeated") {
        const first = await forward(incoming, body);
        first.destroy();
      }
      const answer = await forward(incoming, body);
      // A client that leaves ends a stream.
      outgoing.once("close", () => answer.destroy());
      if (fault === "answer cut") return void incoming.socket.destroy();
      if (fault === "answer late") await delay(o.random() * longestDelayMs);
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      outgoing.flushHeaders();
      let left = fault === "answer cut midway" ? Math.floor(o.random() * longestCut) : Number.POSITIVE_INFINITY;
      for await (const chunk of answer as AsyncIterable<Buffer>) {
        const part = chunk.subarray(0, left);
        left -= part.length;
        if (!outgoing.write(part)) await once(outgoing, "drain");
        if (part.length < chunk.length) break;
      }
      if (fault === "answer cut midway") incoming.socket.destroy();
      else outgoing.end();
    } catch {
      // One of both sides went away, so the other is told.
      incoming.socket.destroy();
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    happened,
    async close() {
      agent.destroy();
      server.closeAllConnections();
      server.close();
    },
  };
}

/** The same numbers for each run (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
