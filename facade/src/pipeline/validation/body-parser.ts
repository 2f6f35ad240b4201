import { errorCodes, type FastifyInstance } from "fastify";
import { createJsonBound } from "./json-bounds.ts";

/** Of the error that a JSON body of too many values is refused with. */
export const tooManyValuesCode = "ERR_TOO_MANY_VALUES";

const jsonMediaType = /^application\/json\s*(?:;|$)/i;
/** RFC 8259, 8.1: JSON between systems is UTF-8. A byte order mark is skipped. */
const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Parses bodies as JSON on routes that have one, and ignores them on others. An empty body counts as no body. Keys that
 * could change a prototype are dropped.
 */
export function parseJsonBodies(app: FastifyInstance): void {
  const parseJson = app.getDefaultJsonParser("remove", "remove");
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (request, body: Buffer, done) => {
    if (!request.routeOptions.schema?.body || body.length === 0) return done(null, undefined);
    if (!jsonMediaType.test(request.headers["content-type"] ?? "")) {
      return done(new errorCodes.FST_ERR_CTP_INVALID_MEDIA_TYPE());
    }
    const text = decode(body);
    if (text === undefined) return done(new errorCodes.FST_ERR_CTP_INVALID_JSON_BODY());
    if (!createJsonBound()(body)) return done(Object.assign(new Error("too many values"), { code: tooManyValuesCode }));
    parseJson(request, text, done);
  });
}

const bytesMediaType = /^application\/octet-stream\s*(?:;|$)/i;

/** Takes bodies of routes that are added to this app as bytes. */
export function acceptBytes(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", { parseAs: "buffer" }, (request, body, done) => {
    const { "content-type": type = "application/octet-stream" } = request.headers;
    if (bytesMediaType.test(type)) done(null, body);
    else done(new errorCodes.FST_ERR_CTP_INVALID_MEDIA_TYPE());
  });
}

/** Leaves the bodies of these routes to their handlers, whatever their type is. */
export function leaveBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", (_request, _payload, done) => done(null, undefined));
  app.addHook("onRequest", (request, _reply, done) => {
    // A type that is none would be refused.
    delete request.headers["content-type"];
    done();
  });
  app.addHook("onRoute", ({ config }) => {
    if (config?.rules) config.rules.streamsBody = true;
  });
}

function decode(body: Buffer): string | undefined {
  try {
    return utf8.decode(body);
  } catch {
    return undefined;
  }
}
