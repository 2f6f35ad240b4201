import {
  type CallOptions,
  type ContextValues,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import { DomainError } from "../base/domain-error.ts";
import { newId } from "../base/ids.ts";

/** Time left for the response to a wait to reach its caller. */
const responseMs = 2_000;

export type CredentialKind = "session" | "api_token";
export type RoleName = "member" | "admin" | "owner";

/** The signed-in user a call is made for. */
export interface UserCaller {
  readonly id: string;
  readonly credential: CredentialKind;
  /** The session's or the API token's id. */
  readonly credentialId: string;
  readonly operator: boolean;
  /** The highest role that the credential has in any workspace, whatever its user's; absent for no limit. */
  readonly roleLimit?: RoleName;
  /** The workspace of the call and the role in it, already authorized by the facade; never above the limit. */
  readonly workspaceId?: string;
  readonly role?: RoleName;
}

/** What a handler knows about the call it answers. */
export interface Call {
  requestId: string;
  /** The original user, also through a hop. */
  user?: UserCaller | undefined;
  idempotencyKey?: string | undefined;
  /** W3C trace context. */
  traceparent?: string | undefined;
  /** The network address of the client whose request this is part of. */
  clientAddress?: string | undefined;
  /** Aborted when the caller goes away, the deadline passes or the call has ended. */
  signal: AbortSignal;
  /** Milliseconds left until the deadline; undefined without one. */
  timeoutMs(): number | undefined;
}

/** What asFacade, asService and onBehalfOf tell a transport about a call. */
export interface Outgoing {
  /** The facade speaks for the user itself; a service only passes on a user it was called for. */
  user?: UserCaller | undefined;
  passedOn: boolean;
  requestId: string;
  idempotencyKey?: string | undefined;
  traceparent?: string | undefined;
  clientAddress?: string | undefined;
}

export const outgoingKey = createContextKey<Outgoing | undefined>(undefined, { description: "sandgate outgoing" });

/** Who calls, as the verified internal token says. */
export interface Caller {
  service: string;
  user?: UserCaller;
}

export const callerKey = createContextKey<Caller | undefined>(undefined, { description: "sandgate caller" });

export const requestIdHeader = "x-request-id";
export const idempotencyKeyHeader = "idempotency-key";
export const traceparentHeader = "traceparent";
export const clientAddressHeader = "x-sandgate-client-address";

/** Headers of a call within this process, in lower case: a Headers object costs more than the rest of what is read of it. */
export const localHeadersKey = createContextKey<Readonly<Record<string, string>> | undefined>(undefined, {
  description: "sandgate local headers",
});

/** A header of a call that is answered. */
export function headerOf(
  context: { readonly values: ContextValues; readonly requestHeader: Headers },
  name: string,
): string | undefined {
  const local = context.values.get(localHeadersKey);
  return local ? local[name] : (context.requestHeader.get(name) ?? undefined);
}

const requestIdKey = createContextKey<string | undefined>(undefined, { description: "sandgate request id" });
const wellFormedRequestId = /^[A-Za-z0-9._-]{1,128}$/;

/** True when a request id from outside may be taken over. */
export function isRequestId(text: string): boolean {
  return wellFormedRequestId.test(text);
}

/** The request's id: the caller's when well-formed, else one generated once for this request. */
export function requestIdOf(context: Parameters<typeof headerOf>[0]): string {
  const { values } = context;
  const known = values.get(requestIdKey);
  if (known !== undefined) return known;
  const given = headerOf(context, requestIdHeader);
  const requestId = given !== undefined && isRequestId(given) ? given : newId();
  values.set(requestIdKey, requestId);
  return requestId;
}

/** The call that a handler answers. */
export function callOf(context: HandlerContext): Call {
  const caller = context.values.get(callerKey);
  if (!caller) throw new DomainError("CALLER_NOT_ALLOWED", "The call was not authenticated.");
  return new HandledCall(context, caller.user);
}

/** Its signal is asked for only when it is read: a call in this process makes it then, which costs more than the rest. */
class HandledCall implements Call {
  readonly requestId: string;
  readonly user: UserCaller | undefined;
  readonly idempotencyKey: string | undefined;
  readonly traceparent: string | undefined;
  readonly clientAddress: string | undefined;
  readonly #context: HandlerContext;

  constructor(context: HandlerContext, user: UserCaller | undefined) {
    this.requestId = requestIdOf(context);
    this.user = user;
    this.idempotencyKey = headerOf(context, idempotencyKeyHeader);
    this.traceparent = headerOf(context, traceparentHeader);
    this.clientAddress = headerOf(context, clientAddressHeader);
    this.#context = context;
  }

  get signal() {
    return this.#context.signal;
  }

  timeoutMs() {
    return this.#context.timeoutMs();
  }
}

/** The user of the call. Throws UNAUTHENTICATED without one. */
export function userOf(call: Call): UserCaller {
  if (!call.user) throw new DomainError("UNAUTHENTICATED", "Sign in first.");
  return call.user;
}

/** The id of the call's workspace. Throws WORKSPACE_REQUIRED without one. */
export function workspaceOf(call: Call): string {
  if (!call.user?.workspaceId) throw new DomainError("WORKSPACE_REQUIRED", "Name a workspace.");
  return call.user.workspaceId;
}

/**
 * How many milliseconds a handler may wait that was asked to wait for some seconds: a retried call has less time left than
 * it asks for, and the response takes some to reach the caller.
 */
export function waitTimeOf(context: Pick<HandlerContext, "timeoutMs">, seconds: number): number {
  const leftMs = context.timeoutMs() ?? Number.POSITIVE_INFINITY;
  return Math.max(0, Math.min(seconds * 1000, leftMs - responseMs));
}

/**
 * Options for an outgoing call that a service makes to answer `call`: the same user (as signed `act` claims), request
 * id, client's address, trace and signal, and what is left of its time. An idempotency key is not passed on: it belongs to the callee of `call`.
 */
export function onBehalfOf(call: Call): CallOptions {
  const remaining = call.timeoutMs();
  return outgoing(
    {
      passedOn: true,
      requestId: call.requestId,
      user: call.user,
      traceparent: call.traceparent,
      clientAddress: call.clientAddress,
    },
    call.signal,
    // Connect takes 0 and less for "no deadline".
    remaining === undefined ? undefined : Math.max(1, remaining),
  );
}

/** Options for a call by the facade, for a user whose credential it has checked, or for nobody. `timeoutMs` 0: no deadline. */
export function asFacade(o: {
  requestId: string;
  user?: UserCaller | undefined;
  idempotencyKey?: string | undefined;
  traceparent?: string | undefined;
  /** Of the client; it goes into events, for the audit log. */
  clientAddress?: string | undefined;
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
}): CallOptions {
  return outgoing(
    {
      passedOn: false,
      requestId: o.requestId,
      user: o.user,
      idempotencyKey: o.idempotencyKey,
      traceparent: o.traceparent,
      clientAddress: o.clientAddress,
    },
    o.signal,
    o.timeoutMs,
  );
}

/** Options for a call that a service makes by itself, for no user, under a request id of its own. */
export function asService(o: { signal?: AbortSignal | undefined; timeoutMs?: number | undefined } = {}): CallOptions {
  return outgoing({ passedOn: false, requestId: newId() }, o.signal, o.timeoutMs);
}

function outgoing(value: Outgoing, signal: AbortSignal | undefined, timeoutMs: number | undefined): CallOptions {
  return {
    contextValues: createContextValues().set(outgoingKey, value),
    ...(signal && { signal }),
    ...(timeoutMs !== undefined && { timeoutMs }),
  };
}
