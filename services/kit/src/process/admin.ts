import Fastify from "fastify";
import { type Dependencies, statesOf } from "../base/dependencies.ts";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics, printMetrics } from "../base/metrics.ts";
import type { DeadLetters } from "../events/bus.ts";
import { addCommandRoutes, type Commands } from "./admin.commands.ts";
import { addDeadLetterRoutes } from "./admin.dead-letters.ts";
import { listenOnSocket } from "./admin.socket.ts";

export interface AdminServer {
  /** "http://127.0.0.1:9090" */
  url: string;
  close(): Promise<void>;
}

export interface AdminOptions {
  host: string;
  /** 0 takes a free port; undefined: only the socket is served. */
  port: number | undefined;
  /** The path of the unix socket of the operators' commands; undefined: there are none. */
  socket: string | undefined;
  /** The registries that are printed as one. Each dependency's state is added to the first. */
  registries: readonly [Metrics, ...Metrics[]];
  logger: Logger;
  /** True while this process can answer: not before it has started, and not while it drains. */
  ready(): boolean;
  /** Returns the state of its dependencies, which doesn't affect its own readiness. */
  dependencies(): Promise<Dependencies>;
  /** Returns the dead letters of this process's consumers; undefined until it has its event bus. */
  deadLetters(): DeadLetters | undefined;
  /** Returns the commands of this process's services; undefined until they are open. */
  commands(): Commands | undefined;
}

/**
 * Serves those who watch the process on a port of its own: /metrics (Prometheus), /healthz (the process is alive) and
 * /readyz (200 if the process can answer, otherwise 503, with every dependency's state in the body). /dead-letters and
 * /commands are on a unix socket, which only the process's own user can open.
 */
export async function startAdminServer(o: AdminOptions): Promise<AdminServer> {
  const app = Fastify({ logger: false, forceCloseConnections: true });

  gauge(o.registries[0], {
    name: "sandgate_dependency_up",
    help: "1 when the dependency answers, else 0.",
    labelNames: ["dependency"],
    async collect() {
      this.reset();
      for (const [dependency, state] of Object.entries(await statesOf(o.dependencies()))) {
        this.set({ dependency }, state === "ok" ? 1 : 0);
      }
    },
  });

  app.get("/healthz", async () => ({ status: "ok" }));
  app.get("/readyz", async (_request, reply) => {
    const ready = o.ready();
    return reply.code(ready ? 200 : 503).send({ ready, dependencies: await statesOf(o.dependencies()) });
  });
  app.get("/metrics", async (_request, reply) => {
    return reply.type("text/plain; version=0.0.4; charset=utf-8").send(await printMetrics(o.registries, o.logger));
  });

  const commands = Fastify({ logger: false });
  await commands.register(async (routes) => addDeadLetterRoutes(routes, o.deadLetters), { prefix: "/dead-letters" });
  await commands.register(async (routes) => addCommandRoutes(routes, o.commands), { prefix: "/commands" });
  const socket = o.socket === undefined ? undefined : await listenOnSocket(commands, o.socket);

  const url = o.port === undefined ? "" : await app.listen({ host: o.host, port: o.port });
  return {
    url,
    async close() {
      await Promise.all([app.close(), socket?.close()]);
    },
  };
}
