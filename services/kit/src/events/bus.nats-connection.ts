import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import {
  type Authenticator,
  connect,
  credsAuthenticator,
  errors,
  type NatsConnection,
  usernamePasswordAuthenticator,
} from "@nats-io/transport-node";
import { backoffMs } from "../base/backoff.ts";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";

/** A process's credentials for NATS. Without them, the user and password in the URL are used if there are any. */
export interface NatsCredentials {
  /**
   * A file that `nsc` or `nats auth` has made. It is read at each connect, so that it can be rotated. While it is
   * missing or half written, its last content is used.
   */
  file?: string;
  user?: string;
  password?: string;
}

/** A connection that reconnects whenever it is lost, until it is closed. */
export interface NatsLink {
  readonly connection: NatsConnection;
  isUp(): boolean;
  /** Calls the listener each time the connection is lost or restored. */
  onChange(listener: (isUp: boolean) => void): void;
  /** Sends what is pending, then closes. */
  close(): Promise<void>;
}

/** The delays between attempts to make the first connection. */
const retry = { firstMs: 500, lastMs: 1_000 };
/** The delay between attempts to reconnect, to which the client adds up to 100 ms at random. */
const reconnectMs = 500;
/** A connection is lost when two pings go unanswered. */
const pingMs = 10_000;

/**
 * Connects to one of the servers in `url` (`nats://` or `tls://`, several separated by commas). It waits for as long as
 * none answers, and reconnects whenever the connection is lost. It fails only if the servers refuse the credentials or
 * their file can't be read. `onEnd` is called if the client gives the connection up nevertheless. Nothing is sent or
 * received then, so the process has to end.
 */
export async function connectNats(options: {
  url: string;
  credentials?: NatsCredentials;
  service: string;
  logger: Logger;
  metrics: Metrics;
  onEnd?: (() => void) | undefined;
}): Promise<NatsLink> {
  const { service, logger, onEnd } = options;
  const address = parseNatsUrl(options.url);
  const authenticator = createAuthenticator(options.credentials ?? {}, address, logger);
  const connection = await connectWithRetry(logger, () =>
    connect({
      servers: address.servers,
      name: `sandgate-${service}`,
      ...(authenticator && { authenticator }),
      ...(address.tls && { tls: {} }),
      // With an inbox of its own, permissions can keep one service from reading another's replies.
      inboxPrefix: inboxOf(service),
      maxReconnectAttempts: -1,
      reconnectTimeWait: reconnectMs,
      pingInterval: pingMs,
      // A password that is being changed must not end the connection for good.
      ignoreAuthErrorAbort: true,
      noAsyncTraces: true,
    }),
  );
  const connected = gauge(options.metrics, {
    name: "sandgate_bus_connected",
    help: "Whether the process is connected to its event bus",
  });
  const listeners = new Set<(isUp: boolean) => void>();
  let isUp = true;
  let isClosing = false;
  connected.set(1);
  const change = (up: boolean) => {
    if (isUp === up) return;
    isUp = up;
    connected.set(up ? 1 : 0);
    for (const listener of listeners) listener(up);
  };
  const watching = (async () => {
    for await (const status of connection.status()) {
      if (status.type === "disconnect") {
        logger.warn({ server: status.server }, "lost the connection to NATS; reconnecting");
        change(false);
      } else if (status.type === "reconnect") {
        logger.info({ server: status.server }, "reconnected to NATS");
        change(true);
      } else if (status.type === "error") {
        logger.warn({ err: status.error }, "NATS reports an error");
      }
    }
    change(false);
    if (isClosing) return;
    logger.fatal({ err: await connection.closed() }, "the connection to NATS ended for good");
    onEnd?.();
  })();
  return {
    connection,
    isUp: () => isUp,
    onChange: (listener) => void listeners.add(listener),
    async close() {
      isClosing = true;
      listeners.clear();
      // Without a connection, waiting for what is pending would be of no use.
      if (isUp) await connection.drain().catch(() => connection.close());
      else await connection.close();
      await watching;
    },
  };
}

/** Returns the prefix of the subjects on which a service receives replies. */
function inboxOf(service: string): string {
  return `_INBOX_${service}`;
}

async function connectWithRetry(logger: Logger, attempt: () => Promise<NatsConnection>): Promise<NatsConnection> {
  for (let failures = 1; ; failures++) {
    try {
      return await attempt();
    } catch (error) {
      // A handshake that exceeds the server's timeout is no refusal, since many processes that start at once are slow.
      const refused = error instanceof errors.AuthorizationError && !/timeout/i.test(error.message);
      if (refused) throw new Error("NATS refuses the credentials", { cause: error });
      if (error instanceof errors.InvalidArgumentError) throw error;
      if (failures % 20 === 1) logger.warn({ err: error }, "waiting for NATS");
      await delay(backoffMs(failures, retry));
    }
  }
}

interface NatsAddress {
  /** `host:port` */
  servers: string[];
  tls: boolean;
  user?: string;
  password?: string;
}

/**
 * Parses a list of NATS addresses, and throws for anything else. User and password are those of the first address that
 * has them.
 */
function parseNatsUrl(url: string): NatsAddress {
  const address: NatsAddress = { servers: [], tls: false };
  for (const each of url.split(",")) {
    const parsed = URL.canParse(each.trim()) ? new URL(each.trim()) : undefined;
    if (!parsed?.hostname || !["nats:", "tls:"].includes(parsed.protocol)) {
      throw new Error("an address of NATS is nats://host:port or tls://host:port; several are separated by commas");
    }
    address.servers.push(`${parsed.hostname}:${parsed.port || 4222}`);
    if (parsed.protocol === "tls:") address.tls = true;
    if (parsed.username && address.user === undefined) {
      address.user = decodeURIComponent(parsed.username);
      address.password = decodeURIComponent(parsed.password);
    }
  }
  return address;
}

function createAuthenticator(
  credentials: NatsCredentials,
  address: NatsAddress,
  logger: Logger,
): Authenticator | undefined {
  if (credentials.file !== undefined) return createFileAuthenticator(credentials.file, logger);
  const user = credentials.user ?? address.user;
  return user === undefined ? undefined : usernamePasswordAuthenticator(user, credentials.password ?? address.password);
}

/**
 * Throws if the file can't be used. The authenticator never throws, since the client would then close the connection
 * for good.
 */
function createFileAuthenticator(file: string, logger: Logger): Authenticator {
  const read = (nonce?: string) => {
    const authenticator = credsAuthenticator(readFileSync(file));
    return { authenticator, answer: authenticator(nonce) };
  };
  const first = () => {
    try {
      return read().authenticator;
    } catch (cause) {
      throw new Error(`the NATS credentials in ${file} can't be read`, { cause });
    }
  };
  let last = first();
  return (nonce) => {
    try {
      const { authenticator, answer } = read(nonce);
      last = authenticator;
      return answer;
    } catch (error) {
      logger.warn({ err: error, file }, "the NATS credentials can't be read; the last ones are used");
      return last(nonce);
    }
  };
}
