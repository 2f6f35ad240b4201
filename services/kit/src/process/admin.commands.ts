import type { FastifyInstance } from "fastify";
import { messageOf } from "../base/domain-error.ts";
import { requireLocalRequests } from "./admin.local.ts";

/** The commands that operators can run in a service, by name. Each takes options and returns what it did. */
export type Commands = Readonly<Record<string, (options: ReadonlySet<string>) => Promise<object>>>;

/**
 * Adds POST /<name>?option=<option>…, which runs a command of this process's services for requests from this machine.
 */
export function addCommandRoutes(app: FastifyInstance, find: () => Commands | undefined): void {
  requireLocalRequests(app);
  app.setErrorHandler((error, _request, reply) => reply.code(500).send({ error: messageOf(error) }));
  app.post<{ Params: { name: string }; Querystring: { option?: string | string[] } }>(
    "/:name",
    async ({ params: { name }, query: { option = [] } }, reply) => {
      const commands = find();
      if (!commands) return reply.code(503).send({ error: "the process is still starting" });
      const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
      if (!command) return reply.code(404).send({ error: "no service of this process has such a command" });
      return command(new Set([option].flat()));
    },
  );
}
