import { Transform } from "node:stream";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { networksOf } from "@sandgate/kit/base/networks";
import { Totals } from "@sandgate/kit/base/totals";
import type { FastifyInstance } from "fastify";
import { JoinedBytes, largeBytes } from "./joined-bytes.ts";

/**
 * The largest body of a route that anyone may call, in bytes. Bodies up to it are not counted: the number of
 * connections bounds them.
 */
export const openBodyBytes = 16 * 1024;

/**
 * Bounds what bodies that clients have begun to send hold in memory, in bytes, for each address and in all. Above it a
 * request is RATE_LIMITED. Of a body that its handler reads while it comes, nothing is held.
 */
export function limitUnfinishedBodies(
  app: FastifyInstance,
  { ofAddress, inAll }: { ofAddress: number; inAll: number },
): void {
  const unfinished = new Totals();

  app.addHook("preParsing", (request, reply, payload, done) => {
    if (request.routeOptions.config.rules?.streamsBody) return done(null, payload);
    const { "content-length": declared, "transfer-encoding": encoding } = request.headers;
    if (encoding === undefined && !(Number(declared) > openBodyBytes)) return done(null, payload);
    const address = networksOf(request.ip)[0].name;
    let held = 0;
    const hold = (bytes: number) => {
      held += bytes;
      return unfinished.add(address, bytes) <= ofAddress && unfinished.all <= inAll;
    };
    const joined = new JoinedBytes();
    const counted = new Transform({
      transform(chunk: Buffer, _encoding, next) {
        if (hold(chunk.length)) {
          joined.add(chunk);
          return next(null, joined.length < largeBytes ? undefined : joined.take());
        }
        next(
          new DomainError("RATE_LIMITED", "Too many large requests are being received.", {
            hint: "Send fewer large requests at once.",
            retryAfterSeconds: 1,
          }),
        );
      },
      flush: (next) => next(null, joined.take()),
    });
    // Not `pipeline`, which takes the connection from a request that fails. What is left of a body that was refused is
    // in the way of the connection's next request.
    payload.pipe(counted);
    payload.once("error", (error) => counted.destroy(error));
    counted.once("error", () => payload.unpipe(counted).resume());
    counted.once("close", () => hold(-held));
    reply.raw.once("close", () => counted.resume());
    done(null, counted);
  });
}
