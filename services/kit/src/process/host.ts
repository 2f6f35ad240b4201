import { constants, type ServerHttp2Session } from "node:http2";
import { setTimeout as delay } from "node:timers/promises";
import type { DescService } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { fastifyConnectPlugin } from "@connectrpc/connect-fastify";
import Fastify from "fastify";
import type { Dependencies } from "../base/dependencies.ts";
import { DomainError } from "../base/domain-error.ts";
import { createHealthState } from "../rpc/health.ts";
import { addReflection } from "../rpc/reflection.ts";
import { createRouterOptions, type ServerOptions } from "../rpc/rpc.ts";

/** How long clients have to read the last of it once the host has ended their calls. */
const partMs = 1_000;
/** How long clients have to learn that the host closes, before it closes their connections (RFC 9113, 6.8). */
const noticeMs = 250;

export interface ServiceHost {
  /** "http://127.0.0.1:8081" */
  url: string;
  /** Takes no more calls, lets running ones finish for `drainMs`, then ends them, and a second later every connection. */
  close(): Promise<void>;
}

/**
 * Serves a service's RPCs (Connect, gRPC and gRPC-Web) over HTTP/2 without TLS, and what anyone may ask without a token:
 * gRPC health, server reflection and /healthz. `port` 0 takes a free one, `drainMs` is 10 s unless set.
 */
export async function startServiceHost(
  o: ServerOptions & {
    routes(router: ConnectRouter): void;
    host: string;
    port: number;
    drainMs?: number;
    /** What the service depends on, for gRPC health. None unless given. */
    dependencies?: () => Promise<Dependencies>;
  },
): Promise<ServiceHost> {
  const drainMs = o.drainMs ?? 10_000;
  const shutdown = new AbortController();
  const health = createHealthState(o.dependencies ?? (async () => ({})));
  // A call that arrives just before its connection learns that the host closes is answered like any other.
  const app = Fastify({ http2: true, logger: false, return503OnClosing: false });
  const sessions = new Set<ServerHttp2Session>();
  app.server.on("session", (session) => {
    sessions.add(session);
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
  const url = await app.listen({ host: o.host, port: o.port });

  return {
    url,
    async close() {
      health.leave();
      // First only a notice that names no last stream: a call that is on its way while a connection closes would be lost.
      for (const session of sessions) {
        if (!session.closed) session.goaway(constants.NGHTTP2_NO_ERROR, 2 ** 31 - 1);
      }
      await delay(noticeMs);
      const ends = setTimeout(() => {
        shutdown.abort(new DomainError("DRAINING", `${o.service} is shutting down.`));
      }, drainMs);
      const parts = setTimeout(() => {
        for (const session of sessions) session.destroy();
      }, drainMs + partMs);
      try {
        await app.close();
      } finally {
        clearTimeout(ends);
        clearTimeout(parts);
      }
    },
  };
}

/** A terminal's Ctrl-C under `npm start` arrives twice, from the terminal and passed on by npm. */
const sameSignalMs = 500;

/** Runs `stop` once, at the first SIGTERM or SIGINT, and ends the process when it has; a second signal ends it at once. */
export function stopOnSignal(stop: () => Promise<void>): void {
  let stoppingSince: number | undefined;
  const onSignal = (signal: NodeJS.Signals) => {
    if (stoppingSince !== undefined) {
      if (performance.now() - stoppingSince > sameSignalMs) process.exit(signal === "SIGINT" ? 130 : 143);
      return;
    }
    stoppingSince = performance.now();
    stop().then(
      () => process.exit(0),
      () => process.exit(1),
    );
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
}
