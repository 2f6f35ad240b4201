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

/** Who a process is to NATS. Without any of it the user and password in the URL count, if there are any. */
export interface NatsCredentials {
  /**
   * A file as `nsc` or `nats auth` makes it; read again at each connect, so that it can be rotated. While it is missing or half
   * written, what it last held counts.
   */
  file?: string;
  user?: string;
  password?: string;
}

/** A connection that lasts until it is closed. */
export interface NatsLink {
  readonly connection: NatsConnection;
  isUp(): boolean;
  /** Called each time it is lost, and each time it is there again. */
  onChange(listener: (isUp: boolean) => void): void;
  /** Sends what is under way, then closes. */
  close(): Promise<void>;
}

/** Between attempts to make the first connection. */
const retry = { firstMs: 250, lastMs: 1_000 };
/** Between attempts to make a lost one again; the client adds up to 100 ms at random. */
const reconnectMs = 500;
/** A connection is lost when two pings go unanswered. */
const pingMs = 10_000;

/**
 * Connects to one of the servers of `url` (`nats://` or `tls://`, several with commas between them), waiting for as long as none
 * answers, and connects again whenever the connection is lost. Fails only when the servers refuse who it is, or when the file of
 * credentials can't be read.
 */
export async function connectNats(options: {
  url: string;
  credentials?: NatsCredentials;
  service: string;
  logger: Logger;
  metrics: Metrics;
}): Promise<NatsLink> {
  const { service, logger } = options;
  const address = parseNatsUrl(options.url);
  const authenticator = createAuthenticator(options.credentials ?? {}, address, logger);
  const connection = await connectAtLast(logger, () =>
    connect({
      servers: address.servers,
      name: `sandgate-${service}`,
      ...(authenticator && { authenticator }),
      ...(address.tls && { tls: {} }),
      // An inbox of its own, so that permissions can keep one service from reading the answers to another.
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
        logger.warn({ server: status.server }, "the connection to NATS is lost; it is tried again");
        change(false);
      } else if (status.type === "reconnect") {
        logger.info({ server: status.server }, "connected to NATS again");
        change(true);
      } else if (status.type === "error") {
        logger.warn({ err: status.error }, "NATS reports an error");
      }
    }
    change(false);
    if (!isClosing) logger.fatal({ err: await connection.closed() }, "the connection to NATS ended for good");
  })();
  return {
    connection,
    isUp: () => isUp,
    onChange: (listener) => void listeners.add(listener),
    async close() {
      isClosing = true;
      listeners.clear();
      // What can't be sent while the connection is lost is not waited for.
      if (isUp) await connection.drain().catch(() => connection.close());
      else await connection.close();
      await watching;
    },
  };
}

/** Under which subjects a service gets its answers. */
function inboxOf(service: string): string {
  return `_INBOX_${service}`;
}

async function connectAtLast(logger: Logger, attempt: () => Promise<NatsConnection>): Promise<NatsConnection> {
  for (let failures = 1; ; failures++) {
    try {
      return await attempt();
    } catch (error) {
      // A handshake that took longer than the server waits is no refusal: many processes starting at once are slow.
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

/** Throws for what is no list of NATS addresses. User and password are those of the first that has some. */
function parseNatsUrl(url: string): NatsAddress {
  const address: NatsAddress = { servers: [], tls: false };
  for (const part of url.split(",")) {
    const parsed = URL.canParse(part.trim()) ? new URL(part.trim()) : undefined;
    if (!parsed?.hostname || !["nats:", "tls:"].includes(parsed.protocol)) {
      throw new Error("an address of NATS is nats://host:port or tls://host:port, several with commas between them");
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

/** Throws for a file that can't be used. Later it never does: the client would close the connection for good. */
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
