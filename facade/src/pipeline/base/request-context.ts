import type { IncomingMessage } from "node:http";
import type { CallOptions } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { PublicReason } from "@sandgate/kit/base/reasons";
import { asFacade, isRequestId, type UserCaller } from "@sandgate/kit/rpc/context";
import type { FastifyRequest } from "fastify";
import type { SignedIn } from "./signed-in.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** Set once the credential has been verified. */
    signedIn: SignedIn | undefined;
    /** The caller with the workspace and the role in it, once that has been checked. */
    inWorkspace: UserCaller | undefined;
    /** The error that the request is answered with. */
    failure: PublicReason | undefined;
    /** Who is to blame for that, for metrics. */
    fault: "none" | "client" | "platform";
    /** The pattern of the matched route, for logs and metrics: the path itself may hold a token. */
    pattern: string;
    /** Whether it is a wait, a stream or a WebSocket, which lasts as long as its client or its sandbox wants, for metrics. */
    isLive: boolean;
  }
}

/** The client's request id if it is well-formed, otherwise a new one. */
export function requestIdOf(raw: IncomingMessage): string {
  const given = raw.headers["x-request-id"];
  return typeof given === "string" && isRequestId(given) ? given : newId();
}

/** Who makes the request; only for routes that need a credential. */
export function signedInOf(request: FastifyRequest): SignedIn {
  if (!request.signedIn) throw new DomainError("UNAUTHENTICATED", "The request has no bearer token.");
  return request.signedIn;
}

/** The longest that the contracts accept. */
const maxAddressLength = 64;

/** The client's address. Undefined when a proxy forwarded something that is no address, or the client left at once. */
export function addressOf({ ip }: { ip: string | undefined }): string | undefined {
  return ip !== undefined && /^[\x21-\x7e]+$/.test(ip) ? ip.slice(0, maxAddressLength) : undefined;
}

/** 1 to 255 printable ASCII characters. */
export const idempotencyKeyPattern = "^[\\x20-\\x7e]{1,255}$";
const wellFormedKey = new RegExp(idempotencyKeyPattern);
const wellFormedTraceparent = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/;

/**
 * Options for a call to a service on behalf of the request's caller, in the request's workspace if it has one. The
 * client's Idempotency-Key goes with a POST, unless the call is given one of its own.
 */
export function callFor(
  request: FastifyRequest,
  o: { signal?: AbortSignal; timeoutMs?: number; idempotencyKey?: string } = {},
): CallOptions {
  const { "idempotency-key": key, traceparent } = request.headers;
  const keyed = request.method === "POST" && typeof key === "string" && wellFormedKey.test(key);
  return asFacade({
    requestId: request.id,
    user: request.inWorkspace ?? request.signedIn?.user,
    idempotencyKey: o.idempotencyKey ?? (keyed ? key : undefined),
    traceparent: typeof traceparent === "string" && wellFormedTraceparent.test(traceparent) ? traceparent : undefined,
    clientAddress: addressOf(request),
    signal: o.signal,
    timeoutMs: o.timeoutMs,
  });
}
