import { Agent, type ClientRequest, type ClientRequestArgs } from "node:http";
import type { Duplex } from "node:stream";

/**
 * How long a connection is kept without a request: shorter than common servers keep it. Meanwhile its sandbox counts as
 * used.
 */
const idleMs = 2_000;
/** Connections without a request, to one of what there is to connect to. */
const maxIdle = 32;

/** Of a request over a kept connection. */
export interface PooledOptions extends ClientRequestArgs {
  /** What the connection leads to: requests with the same have the same connections. */
  host: string;
  connect(): Duplex;
}

/** Keeps connections for later requests. */
class PortAgent extends Agent {
  readonly #idle = new WeakMap<Duplex, NodeJS.Timeout>();

  constructor() {
    super({ keepAlive: true, maxFreeSockets: maxIdle });
  }

  override getName({ host = "" }: { host?: string } = {}): string {
    return host;
  }

  override createConnection({ connect }: PooledOptions): Duplex {
    return connect();
  }

  // Node's own calls methods of a network's socket.
  override keepSocketAlive(stream: Duplex): boolean {
    this.#idle.set(stream, setTimeout(() => stream.destroy(), idleMs).unref());
    return true;
  }

  override reuseSocket(stream: Duplex, request: ClientRequest): void {
    clearTimeout(this.#idle.get(stream));
    super.reuseSocket(stream, request);
  }
}

/** Opens an agent for requests with PooledOptions. */
export function openPortAgent(): Agent {
  return new PortAgent();
}
