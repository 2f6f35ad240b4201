import { constants, createSecureServer, createServer, type ServerHttp2Session } from "node:http2";
import { setTimeout as delay } from "node:timers/promises";
import { Server as TlsServer } from "node:tls";
import type { DescService } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import Fastify from "fastify";
import type { Dependencies } from "../base/dependencies.ts";
import { DomainError } from "../base/domain-error.ts";
import { createHealthState } from "../rpc/health.ts";
import { addReflection } from "../rpc/reflection.ts";
import { createRouterOptions, type ServerOptions } from "../rpc/rpc.ts";
import type { Tls } from "../rpc/tls.ts";

/**
 * The time between ending the remaining calls and force-closing connections, in which clients read the last responses.
 */
const forceCloseDelayMs = 1_000;
/** The time between the GOAWAY notice and closing, in which clients stop sending calls (RFC 9113, 6.8). */
const noticeMs = 250;
/** How long an idle connection is kept, which is longer than callers keep one. */
const idleMs = 72_000;

export interface ServiceHost {
  /** "http://127.0.0.1:8081" */
  url: string;
  /**
   * Accepts no more calls and lets running ones finish for `drainMs`. Then it ends them, and a second later it closes
   * every connection.
   */
  close(): Promise<void>;
}

/**
 * Serves a service's RPCs (Connect, gRPC and gRPC-Web) over HTTP/2, with TLS if `tls` has a certificate. gRPC health,
 * server reflection and /healthz need no token. A `port` of 0 takes a free port. `drainMs` is 10 s unless set.
 */
export async function startServiceHost(
  o: ServerOptions & {
    routes(router: ConnectRouter): void;
    host: string;
    port: number;
    drainMs?: number;
    tls?: Tls | undefined;
    /** Whether callers without a certificate that `tls` trusts are refused. */
    requireClientCertificates?: boolean;
    /** Returns the dependencies that gRPC health reports. None are reported unless given. */
    dependencies?: () => Promise<Dependencies>;
  },
): Promise<ServiceHost> {
  const drainMs = o.drainMs ?? 10_000;
  const shutdown = new AbortController();
  const health = createHealthState(o.dependencies ?? (async () => ({})));
  // A call that arrives just before the client learns that the host is closing is answered like any other.
  const secure = secureOptions(o);
  const app = Fastify({
    http2: true,
    logger: false,
    return503OnClosing: false,
    serverFactory: (handler) => (secure ? createSecureServer(secure, handler) : createServer(handler)),
  });
  o.tls?.onChange(() => {
    const changed = o.tls?.server();
    if (changed && app.server instanceof TlsServer) app.server.setSecureContext(changed);
  });
  const sessions = new Set<ServerHttp2Session>();
  app.server.on("session", (session) => {
    sessions.add(session);
    session.setTimeout(idleMs, () => session.close());
    session.once("close", () => sessions.delete(session));
  });
  app.get("/healthz", async () => ({ status: "ok" }));
  const services = new Set<DescService>();
  await app.register(fastifyConnectPlugin, {
    ...createRouterOptions(o),
    routes(router) {
      o.routes(router);
      for (const { service } of router.handlers) services.add(service);
    },
    shutdownSignal: shutdown.signal,
  });
  await app.register(fastifyConnectPlugin, {
    routes(router) {
      health.routes(
        router,
        [...services].map(({ typeName }) => typeName),
      );
      addReflection(router, [...services]);
    },
    shutdownSignal: shutdown.signal,
  });
  const address = await app.listen({ host: o.host, port: o.port });
  const url = secure ? address.replace("http:", "https:") : address;

  return {
    url,
    async close() {
      health.stop();
      // The first GOAWAY names no last stream, since calls that are on their way would be lost otherwise.
      for (const session of sessions) {
        if (!session.closed) session.goaway(constants.NGHTTP2_NO_ERROR, 2 ** 31 - 1);
      }
      await delay(noticeMs);
      const endCallsTimer = setTimeout(() => {
        shutdown.abort(new DomainError("DRAINING", `${o.service} is shutting down.`));
      }, drainMs);
      const forceCloseTimer = setTimeout(() => {
        for (const session of sessions) session.destroy();
      }, drainMs + forceCloseDelayMs);
      try {
        await app.close();
      } finally {
        clearTimeout(endCallsTimer);
        clearTimeout(forceCloseTimer);
      }
    },
  };
}

/** Returns the options of TLS, or undefined to serve without it. */
function secureOptions(o: { tls?: Tls | undefined; requireClientCertificates?: boolean }) {
  const served = o.tls?.server();
  if (!served) return undefined;
  const required = o.requireClientCertificates === true;
  return { ...served, requestCert: required, rejectUnauthorized: required };
}

/** Under `npm start`, Ctrl-C arrives twice within this time: from the terminal, and forwarded by npm. */
const sameSignalMs = 500;

/** How long an orderly end after a failure may take, which is a little longer than running calls may take. */
const failedStopMs = 20_000;

/**
 * Runs `stop` at the first SIGTERM or SIGINT, and then ends the process. A second signal ends it at once. The returned
 * function does the same after a failure that only a new process can mend, with exit code 1 and within 20 s.
 */
export function stopOnSignal(stop: () => Promise<void>): () => void {
  let stoppingSince: number | undefined;
  const begin = (code: number) => {
    stoppingSince = performance.now();
    stop().then(
      () => process.exit(code),
      () => process.exit(1),
    );
  };
  const onSignal = (signal: NodeJS.Signals) => {
    if (stoppingSince === undefined) begin(0);
    else if (performance.now() - stoppingSince > sameSignalMs) process.exit(signal === "SIGINT" ? 130 : 143);
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
  return () => {
    if (stoppingSince !== undefined) return;
    setTimeout(() => process.exit(1), failedStopMs);
    begin(1);
  };
}
