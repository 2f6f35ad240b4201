import type { FastifyInstance } from "fastify";
import { messageOf } from "../base/domain-error.ts";
import type { DeadLetter, DeadLetters } from "../events/bus.ts";
import { eventToJson } from "../events/dead-letters.ts";

const pageSize = 100;

/** Adds routes that list, show, replay and drop dead letters. */
export function addDeadLetterRoutes(app: FastifyInstance, find: () => DeadLetters | undefined): void {
  app.addHook("onRequest", async (_request, reply) => {
    if (!find()) return reply.code(503).send({ error: "not connected to the event bus yet" });
  });
  app.setErrorHandler((error, _request, reply) => reply.code(500).send({ error: messageOf(error) }));

  const deadLetters = (): DeadLetters => {
    const found = find();
    if (!found) throw new Error("not connected to the event bus");
    return found;
  };
  app.get<{ Querystring: { after?: string } }>("/", async ({ query }) => {
    const page = await deadLetters().list({ limit: pageSize, afterId: query.after });
    const last = page.length === pageSize ? page.at(-1)?.id : undefined;
    return { dead_letters: page.map(toSummary), ...(last && { next: last }) };
  });
  app.get<{ Params: { id: string } }>("/:id", async ({ params }, reply) => {
    const letter = await deadLetters().get(params.id);
    if (!letter) return reply.code(404).send({ error: "no such dead letter" });
    const { event, payloadBytes } = eventToJson(letter.event);
    return { ...toSummary(letter), event, ...(payloadBytes && { payload_bytes: payloadBytes }) };
  });
  app.post<{ Params: { id: string } }>("/:id/replay", async ({ params }, reply) => {
    if (await deadLetters().replay(params.id)) return reply.code(204).send();
    return reply.code(404).send({ error: "no such dead letter" });
  });
  app.delete<{ Params: { id: string } }>("/:id", async ({ params }, reply) => {
    if (await deadLetters().drop(params.id)) return reply.code(204).send();
    return reply.code(404).send({ error: "no such dead letter" });
  });
}

function toSummary({ id, consumer, attempts, error, failedAt, event }: DeadLetter) {
  const { subject, entityId, workspaceId } = event;
  return {
    id,
    consumer,
    subject,
    entity_id: entityId,
    workspace_id: workspaceId,
    attempts,
    error,
    failed_at: failedAt.toISOString(),
  };
}
