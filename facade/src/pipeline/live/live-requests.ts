import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply, FastifyRequest } from "fastify";
import { signedInOf } from "../base/request-context.ts";
import type { SlotLimit, Slots } from "../limits/slots.ts";
import { recheck } from "./rechecks.ts";

/** How many waits, streams and WebSockets each session or API token may have open. */
const maxPerCredential = 100;
/** How many a user may have open with all of them together. */
const maxPerUser = 200;
/** Made once, since the trace of each new one takes as long as a small call. */
const left = new DOMException("The request is over.", "AbortError");

/** A request that lasts: a wait, a stream or a WebSocket. */
export interface LiveRequest {
  /**
   * Aborts when the client has left, the server drains, the caller has lost access, or the request is closed. Its reason
   * is `endedBy`, if there is one.
   */
  readonly signal: AbortSignal;
  /**
   * What it was ended for: DRAINING, the refusal by which the caller lost access, or UPSTREAM_ERROR when that can't be
   * checked. Undefined otherwise.
   */
  readonly endedBy: DomainError | undefined;
  /** Throws the refusal when the caller has lost access. */
  checkAccess(): Promise<void>;
  /** Gives back its slots. */
  close(): void;
}

/** The open waits, streams and WebSockets. */
export interface LiveRequests {
  /** True once the server drains. */
  readonly draining: boolean;
  /**
   * Opens one, which its caller closes. Until then access is checked every second. Throws RATE_LIMITED when the
   * credential or its user has too many open.
   */
  open(request: FastifyRequest, reply: FastifyReply): Promise<LiveRequest>;
  /**
   * Runs work while one is open. Throws the refusal when the caller has lost access meanwhile. When the server drains,
   * the result is that of `onDrain`, which throws DRAINING by default.
   */
  run<T>(
    request: FastifyRequest,
    reply: FastifyReply,
    work: (live: LiveRequest) => Promise<T>,
    onDrain?: (cause: unknown) => T,
  ): Promise<T>;
  /** Ends those that are open, and those opened from now on. */
  drain(): void;
}

export function createLiveRequests(o: {
  slots: Slots;
  /** Throws when the caller of an open request has lost access. */
  checkAccess(request: FastifyRequest): Promise<void>;
}): LiveRequests {
  const open = new Set<(reason: DomainError) => void>();
  let draining = false;

  async function acquireSlots(request: FastifyRequest): Promise<() => void> {
    const { user } = signedInOf(request);
    const ofCredential = { key: `waits of ${user.credential} ${user.credentialId}`, limit: maxPerCredential };
    const ofUser = { key: `waits of user ${user.id}`, limit: maxPerUser };
    const exceeded = await o.slots.acquire([ofCredential, ofUser]);
    if (exceeded) throw tooManyOpen(exceeded, exceeded === ofUser);
    return () => o.slots.release([ofCredential, ofUser]);
  }

  const live: LiveRequests = {
    get draining() {
      return draining;
    },

    async open(request, reply) {
      request.isLive = true;
      const releaseSlots = await acquireSlots(request);
      const controller = new AbortController();
      let endedBy: DomainError | undefined;
      const leave = () => controller.abort(left);
      const end = (reason: DomainError) => {
        endedBy ??= reason;
        controller.abort(endedBy);
      };
      open.add(end);
      if (draining) end(drained());
      // The client may have disconnected before the request got here.
      if (reply.raw.destroyed) leave();
      // The response's close event, unlike the request's, comes only when the client is gone or everything was sent.
      reply.raw.once("close", leave);
      const checkAccess = () => o.checkAccess(request);
      const stopChecks = recheck(checkAccess, end);
      return {
        signal: controller.signal,
        get endedBy() {
          return endedBy;
        },
        checkAccess,
        close() {
          if (!open.delete(end)) return;
          stopChecks();
          reply.raw.off("close", leave);
          controller.abort(left);
          releaseSlots();
        },
      };
    },

    async run(request, reply, work, onDrain) {
      const opened = await live.open(request, reply);
      try {
        return await work(opened);
      } catch (error) {
        if (opened.endedBy?.reason === "DRAINING" && onDrain) return onDrain(error);
        throw opened.endedBy ?? error;
      } finally {
        opened.close();
      }
    },

    drain() {
      draining = true;
      for (const end of open) end(drained());
    },
  };
  return live;
}

function drained(): DomainError {
  return new DomainError("DRAINING", "The server is shutting down.");
}

function tooManyOpen({ limit }: SlotLimit, isOfUser: boolean): DomainError {
  const who = isOfUser ? "Your credentials together have" : "This credential has";
  return new DomainError("RATE_LIMITED", `${who} ${limit} waits and streams open.`, {
    hint: "End one of them, or wait for one to end.",
    retryAfterSeconds: 1,
  });
}
