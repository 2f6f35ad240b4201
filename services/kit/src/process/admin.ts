import Fastify from "fastify";
import { type Dependencies, statesOf } from "../base/dependencies.ts";
import { gauge, type Metrics, printMetrics } from "../base/metrics.ts";
import type { DeadLetters } from "../events/bus.ts";
import { addCommandRoutes, type Commands } from "./admin.commands.ts";
import { addDeadLetterRoutes } from "./admin.dead-letters.ts";

export interface AdminServer {
  /** "http://127.0.0.1:9090" */
  url: string;
  close(): Promise<void>;
}

export interface AdminOptions {
  host: string;
  /** 0 takes a free one. */
  port: number;
  /** Printed as one; each dependency's state is added to the first. */
  registries: readonly [Metrics, ...Metrics[]];
  /** True while this process can answer; false before it started and while it drains. */
  ready(): boolean;
  /** The state of what it depends on, which changes nothing about its own readiness. */
  dependencies(): Promise<Dependencies>;
  /** The dead letters of this process's consumers; undefined until it has its event bus. */
  deadLetters(): DeadLetters | undefined;
  /** The commands of this process's services; undefined until they are open. */
  commands(): Commands | undefined;
}

/**
 * Serves /metrics (Prometheus), /healthz (the process is alive) and /readyz (it can answer: 200, else 503, with every
 * dependency's state in the body) for operators, on a port of its own; and /dead-letters and /commands for those on this machine.
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
    return reply.type("text/plain; version=0.0.4; charset=utf-8").send(await printMetrics(o.registries));
  });
  await app.register(async (routes) => addDeadLetterRoutes(routes, o.deadLetters), { prefix: "/dead-letters" });
  await app.register(async (routes) => addCommandRoutes(routes, o.commands), { prefix: "/commands" });

  const url = await app.listen({ host: o.host, port: o.port });
  return { url, close: () => app.close() };
}
