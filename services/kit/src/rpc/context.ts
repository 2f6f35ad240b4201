import {
  type CallOptions,
  type ContextValues,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import { DomainError } from "../base/domain-error.ts";
import { newId } from "../base/ids.ts";

/** The time that the response to a wait needs to reach its caller. */
const responseMs = 2_000;

export type CredentialKind = "session" | "api_token";
export type RoleName = "member" | "admin" | "owner";
/** What an API token may be made for. */
export type PermissionName = "read" | "provision" | "use" | "manage";

/** The one caller that may speak for a user by itself. */
export const facade = "facade";

/** The signed-in user for whom a call is made. */
export interface UserCaller {
  readonly id: string;
  readonly credential: CredentialKind;
  /** The session's or the API token's id. */
  readonly credentialId: string;
  readonly operator: boolean;
  /**
   * The highest role that the credential may have in any workspace, whatever its user's role is; absent if there is no
   * limit.
   */
  readonly roleLimit?: RoleName;
  /** All that an API token may do of what its role may; absent if that is everything. */
  readonly permissions?: readonly PermissionName[];
  /** The call's workspace and the role in it, which the facade has authorized; it is never above the limit. */
  readonly workspaceId?: string;
  readonly role?: RoleName;
}

/** What a handler knows about the call it answers. */
export interface Call {
  requestId: string;
  /** The original user, even if another service passed the call on. */
  user?: UserCaller | undefined;
  idempotencyKey?: string | undefined;
  /** W3C trace context. */
  traceparent?: string | undefined;
  /** The network address of the client whose request caused the call. */
  clientAddress?: string | undefined;
  /** Aborts when the caller leaves, the deadline passes or the call has ended. */
  signal: AbortSignal;
  /** Returns the milliseconds until the deadline; undefined if there is none. */
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

/** The caller that the verified internal token names. */
export interface Caller {
  service: string;
  user?: UserCaller;
}

export const callerKey = createContextKey<Caller | undefined>(undefined, { description: "sandgate caller" });

export const requestIdHeader = "x-request-id";
export const idempotencyKeyHeader = "idempotency-key";
export const traceparentHeader = "traceparent";
export const clientAddressHeader = "x-sandgate-client-address";

/**
 * The headers of a call within this process, in lower case. A Headers object would cost more than everything else that
 * is read.
 */
export const localHeadersKey = createContextKey<Readonly<Record<string, string>> | undefined>(undefined, {
  description: "sandgate local headers",
});

/** Returns a header of the call that is being answered. */
export function headerOf(
  context: { readonly values: ContextValues; readonly requestHeader: Headers },
  name: string,
): string | undefined {
  const local = context.values.get(localHeadersKey);
  return local ? local[name] : (context.requestHeader.get(name) ?? undefined);
}

const requestIdKey = createContextKey<string | undefined>(undefined, { description: "sandgate request id" });
const wellFormedRequestId = /^[A-Za-z0-9._-]{1,128}$/;

/** True if a request id from outside may be used. */
export function isRequestId(text: string): boolean {
  return wellFormedRequestId.test(text);
}

/** Returns the request's id: the caller's if it is well-formed, and otherwise one generated for this request. */
export function requestIdOf(context: Parameters<typeof headerOf>[0]): string {
  const { values } = context;
  const known = values.get(requestIdKey);
  if (known !== undefined) return known;
  const given = headerOf(context, requestIdHeader);
  const requestId = given !== undefined && isRequestId(given) ? given : newId();
  values.set(requestIdKey, requestId);
  return requestId;
}

/** Returns the call that a handler answers. */
export function callOf(context: HandlerContext): Call {
  const caller = context.values.get(callerKey);
  if (!caller) throw new DomainError("CALLER_NOT_ALLOWED", "The call was not authenticated.");
  return new HandledCall(context, caller.user);
}

/**
 * The signal is requested only when it is read, because a call within this process creates it then, at a higher cost
 * than the rest.
 */
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

/** Returns the call's user. Throws UNAUTHENTICATED if there is none. */
export function userOf(call: Call): UserCaller {
  if (!call.user) throw new DomainError("UNAUTHENTICATED", "Sign in first.");
  return call.user;
}

/** Returns the id of the call's workspace. Throws WORKSPACE_REQUIRED if there is none. */
export function workspaceOf(call: Call): string {
  if (!call.user?.workspaceId) throw new DomainError("WORKSPACE_REQUIRED", "The call names no workspace.");
  return call.user.workspaceId;
}

/**
 * Returns how many milliseconds a handler may wait when a call asks for so many seconds. A retried call has less time
 * left than it asks for, and the response needs some time to reach the caller.
 */
export function waitTimeOf(context: Pick<HandlerContext, "timeoutMs">, seconds: number): number {
  const leftMs = context.timeoutMs() ?? Number.POSITIVE_INFINITY;
  return Math.max(0, Math.min(seconds * 1000, leftMs - responseMs));
}

/**
 * Options for a call that a service makes in order to answer `call`: the same user (as signed `act` claims), request
 * id, client's address, trace and signal, and the time that is left. The idempotency key isn't passed on, since it
 * belongs to the callee of `call`.
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
    // To Connect, 0 and less mean "no deadline".
    remaining === undefined ? undefined : Math.max(1, remaining),
  );
}

/**
 * Options for a call by the facade, for a user whose credential it has checked or for nobody. A `timeoutMs` of 0 means
 * no deadline.
 */
export function asFacade(o: {
  requestId: string;
  user?: UserCaller | undefined;
  idempotencyKey?: string | undefined;
  traceparent?: string | undefined;
  /** The client's address, which events carry for the audit log. */
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

/** Options for a call that a service makes on its own account, for no user and with a request id of its own. */
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
