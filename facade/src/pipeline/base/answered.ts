import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";

/** Takes note of a request. */
export type Report = (request: FastifyRequest, reply: FastifyReply) => void;

/**
 * Calls each back once for each request: when its answer was sent or broke off, or, when its client left before, when it
 * would have been sent. Fastify's own hook runs only for answers that were sent to their end. Call this before hooks
 * are added that refuse requests.
 */
export function onAnswered(app: FastifyInstance, reports: readonly Report[]): void {
  /** Those that Fastify is sending. */
  const sending = new WeakSet<FastifyRequest>();
  const reported = new WeakSet<FastifyRequest>();
  const reportOnce: Report = (request, reply) => {
    if (reported.has(request)) return;
    reported.add(request);
    for (const report of reports) report(request, reply);
  };

  app.addHook("onRequest", (request, reply, done) => {
    // `sent` is also true for an answer that the route sends by itself.
    reply.raw.once("close", () => {
      if (sending.has(request) || reply.sent) reportOnce(request, reply);
    });
    done();
  });
  app.addHook("onSend", (request, reply, payload, done) => {
    sending.add(request);
    if (reply.raw.destroyed) reportOnce(request, reply);
    done(null, payload);
  });
  app.addHook("onResponse", (request, reply, done) => {
    reportOnce(request, reply);
    done();
  });
}
