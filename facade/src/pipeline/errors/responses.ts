import { type ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { Code, ConnectError } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Logger } from "@sandgate/kit/base/logging";
import { type PublicReason, publicErrors, toPublicReason } from "@sandgate/kit/base/reasons";
import type { FastifyError, FastifyReply, FastifyRequest } from "fastify";
import { accessOfRequest } from "../base/route-rules.ts";
import type { SecurityHeaders } from "../base/security-headers.ts";
import { tooManyValuesCode } from "../validation/body-parser.ts";
import { tooManyValues } from "../validation/json-bounds.ts";
import { compileCheck, toPublicField } from "../validation/request-check.ts";
import { toEnvelope, validationError } from "./envelope.ts";

export interface ErrorResponder {
  /** Sends the response to a thrown error. */
  respond(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply;
  /** Sends the response to an error thrown outside of the app's routes. */
  respondRaw(error: unknown, requestId: string, response: ServerResponse): void;
  /** Sends a response to bytes that are not a valid HTTP request, or breaks off the one that is being sent. */
  respondToUnreadable(error: NodeJS.ErrnoException, socket: Socket): void;
}

/** The errors of Fastify and of the body parser for a body that can't be used, and what to tell the client. */
const bodyIssues: Record<string, string> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: "must have the content type application/json",
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: "must have the length that its Content-Length header gives",
  FST_ERR_CTP_INVALID_JSON_BODY: "must be valid JSON in UTF-8",
  [tooManyValuesCode]: tooManyValues,
  ECONNRESET: "must be complete",
};

/** How long a client may take to read the response to what can't be read, and to end its side. */
const closeMs = 5_000;

/** What is logged when the client left before there was an answer, as nginx does. It is never sent. */
const clientLeftStatus = 499;

export function createErrorResponder(o: { docsUrl: string; headers: SecurityHeaders; logger: Logger }): ErrorResponder {
  function respond(thrown: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
    const error = toDomainError(thrown, request);
    const reason = toPublicReason(error.reason);
    const hasLeft = reply.raw.destroyed && isAbort(thrown);
    const status = hasLeft ? clientLeftStatus : publicErrors[reason].status;
    request.failure = reason;
    request.fault = status < 500 || error.callersFault ? "client" : "platform";
    // What was ended because its client has left is no fault of the platform.
    if (!hasLeft) {
      report(error, thrown, { request_id: request.id, route: request.pattern });
    }
    // Hooks don't run for a malformed path, so these headers may be missing.
    reply.code(status).headers(o.headers).header("x-request-id", request.id);
    if (status === 401) reply.header("www-authenticate", challengeOf(reason));
    if (reason === "RATE_LIMITED" || error.retryAfterSeconds) {
      reply.header("retry-after", String(Math.max(1, Math.ceil(error.retryAfterSeconds ?? 1))));
    }
    // The connection stays open: closing it while the client is still sending would lose the response.
    reply.removeHeader("connection");
    const said = request.routeOptions.config.rules?.sayError?.(error, request);
    if (said?.body instanceof Uint8Array) reply.serializer((body) => body as never);
    else reply.serializer(JSON.stringify).type("application/json; charset=utf-8");
    if (said) {
      const { headers = {}, body } = said;
      return reply
        .code(hasLeft ? status : said.status)
        .headers(headers)
        .send(body);
    }
    if (reason === "VALIDATION_ERROR" && request.routeOptions.config.rules?.listedErrors) {
      return reply.send({ detail: error.violations?.map(toListedError) ?? [] });
    }
    return reply.send(toEnvelope(error, { requestId: request.id, docsUrl: o.docsUrl }));
  }

  /** Logs what is a fault of the platform. */
  function report(error: DomainError, thrown: unknown, about: { request_id: string; route: string }): void {
    const reason = toPublicReason(error.reason);
    if (reason === "INTERNAL_ERROR") o.logger.error({ ...about, err: thrown }, "unexpected error");
    else if (reason === "UPSTREAM_ERROR" && !error.callersFault) {
      o.logger.warn({ ...about, err: thrown }, "a dependency failed");
    }
  }

  return {
    respond,
    respondRaw(thrown, requestId, response) {
      const error = thrown instanceof DomainError ? thrown : new DomainError("INTERNAL_ERROR", "unexpected");
      report(error, thrown, { request_id: requestId, route: "preview" });
      const reason = toPublicReason(error.reason);
      const { status } = publicErrors[reason];
      const body = JSON.stringify(toEnvelope(error, { requestId, docsUrl: o.docsUrl }));
      response.writeHead(status, {
        ...o.headers,
        "x-request-id": requestId,
        ...(status === 401 && { "www-authenticate": challengeOf(reason) }),
        ...(error.retryAfterSeconds && { "retry-after": String(Math.max(1, Math.ceil(error.retryAfterSeconds))) }),
        "content-type": "application/json; charset=utf-8",
        "content-length": Buffer.byteLength(body),
      });
      response.end(response.req.method === "HEAD" ? undefined : body);
    },
    respondToUnreadable(error, socket) {
      // Its client would take this for a part of an answer that has begun. As Node's own handler does.
      const { _httpMessage: answer } = socket as Socket & { _httpMessage?: ServerResponse | null };
      if (error.code === "ECONNRESET" || !socket.writable || answer?.headersSent) return void socket.destroy(error);
      const issue =
        error.code === "HPE_HEADER_OVERFLOW"
          ? { field: "header", issue: "must not be larger than 16 KiB in total" }
          : { field: "body", issue: "must be part of a well-formed and timely HTTP request" };
      const requestId = newId();
      const { status } = publicErrors.VALIDATION_ERROR;
      const body = JSON.stringify(toEnvelope(validationError([issue]), { requestId, docsUrl: o.docsUrl }));
      socket.end(
        [
          `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
          "Content-Type: application/json; charset=utf-8",
          `Content-Length: ${Buffer.byteLength(body)}`,
          `X-Request-Id: ${requestId}`,
          ...Object.entries(o.headers).map(([name, value]) => `${name}: ${value}`),
          "Connection: close",
          "",
          body,
        ].join("\r\n"),
      );
      // Its client may keep its own side open, and what it has sent with it.
      const late = setTimeout(() => socket.destroy(), closeMs).unref();
      socket.once("close", () => clearTimeout(late));
    },
  };
}

/** RFC 6750, 3. */
function challengeOf(reason: PublicReason): string {
  return reason === "INVALID_TOKEN" ? 'Bearer realm="sandgate", error="invalid_token"' : 'Bearer realm="sandgate"';
}

/** Whether an error says that a signal ended the work, or the call that it was waiting for. */
function isAbort(error: unknown): boolean {
  if (error instanceof DomainError) return isAbort(error.cause);
  if (error instanceof ConnectError) return error.code === Code.Canceled;
  return error instanceof Error && error.name === "AbortError";
}

function toDomainError(thrown: unknown, request: FastifyRequest): DomainError {
  if (thrown instanceof DomainError) {
    if (thrown.violations) return withPublicFields(thrown, request);
    // Only a workspace in the path is reported as not found. One in the header may have been deleted since it was
    // checked here.
    if (thrown.reason === "WORKSPACE_NOT_FOUND" && accessOfRequest(request).workspace?.in !== "path") {
      return new DomainError("WORKSPACE_FORBIDDEN", "You are not a member of this workspace.", { cause: thrown });
    }
    return thrown;
  }
  const code = codeOfThrown(thrown);
  if (code === "FST_ERR_BAD_URL" || code === "FST_ERR_MAX_PARAM_LENGTH") {
    return new DomainError("NOT_FOUND", "There is no such route.", { cause: thrown });
  }
  const issue = code === undefined ? undefined : bodyIssueOf(code, request);
  if (issue !== undefined) {
    // The body was refused before the other parts of the request were checked.
    const others = compileCheck({ ...request.routeOptions.schema, body: undefined })(request);
    return validationError([...others, { field: "body", issue }]);
  }
  return new DomainError("INTERNAL_ERROR", "unexpected", { cause: thrown });
}

/** What is wrong with the body, if an error with this code is about it. */
function bodyIssueOf(code: string, request: FastifyRequest): string | undefined {
  if (code === "FST_ERR_CTP_BODY_TOO_LARGE") {
    return `must not be larger than ${request.routeOptions.bodyLimit / 1024} KiB`;
  }
  if (code === "FST_ERR_CTP_INVALID_MEDIA_TYPE" && request.routeOptions.config.rules?.bytes) {
    return "must have the content type application/octet-stream";
  }
  return bodyIssues[code] ?? (isBodyFault(code) ? "can't be read" : undefined);
}

/** Whether Fastify failed to parse a content type, or Node to read the request's stream. */
function isBodyFault(code: string): boolean {
  return code.startsWith("FST_ERR_CTP_") || code.startsWith("ERR_STREAM_");
}

function codeOfThrown(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || !("code" in thrown)) return undefined;
  const { code } = thrown as Partial<Pick<FastifyError, "code">>;
  // An AbortError's is a number.
  return typeof code === "string" ? code : undefined;
}

function withPublicFields(error: DomainError, request: FastifyRequest): DomainError {
  const { schema } = request.routeOptions;
  const violations =
    error.violations?.map(({ field, issue }) => ({ field: toPublicField(field, schema), issue })) ?? [];
  const fields = new Set<string>();
  const firstOfEach = violations.filter(({ field }) => !fields.has(field) && fields.add(field));
  if (firstOfEach.length === 0) return error;
  const message = error.reason === "VALIDATION_ERROR" ? validationError(firstOfEach).message : error.message;
  return new DomainError(error.reason, message, {
    violations: firstOfEach,
    hint: error.hint,
    cause: error,
  });
}

function toListedError({ field, issue }: { field: string; issue: string }): {
  loc: string[];
  msg: string;
  type: string;
} {
  return { loc: field.split("."), msg: issue, type: "value_error" };
}
