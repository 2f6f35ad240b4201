import type { FastifyInstance } from "fastify";
import { messageOf } from "../base/domain-error.ts";

/** The commands that operators can run in a service, by name. Each takes options and returns what it did. */
export type Commands = Readonly<Record<string, (options: ReadonlySet<string>) => Promise<object>>>;

/**
 * Returns the commands of all services of a process. One that several have runs in each of these, and its answer is by
 * their names.
 */
export function mergeCommands(services: Readonly<Record<string, { commands?: Commands }>>): Commands {
  const merged: Record<string, Commands[string]> = {};
  for (const name of new Set(Object.values(services).flatMap(({ commands = {} }) => Object.keys(commands)))) {
    const own = Object.entries(services).flatMap(([service, { commands }]) =>
      commands?.[name] ? [{ service, run: commands[name] }] : [],
    );
    merged[name] = async (options) => {
      const answers = await Promise.all(own.map(async ({ service, run }) => [service, await run(options)] as const));
      return answers.length === 1 ? (answers[0]?.[1] ?? {}) : Object.fromEntries(answers);
    };
  }
  return merged;
}

/** Adds POST /<name>?option=<option>…, which runs a command of this process's services. */
export function addCommandRoutes(app: FastifyInstance, find: () => Commands | undefined): void {
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
