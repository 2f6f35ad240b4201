import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply } from "fastify";
import type { SignedIn } from "../base/signed-in.ts";
import type { Slots } from "../limits/slots.ts";

/** How many waits and streams each session or API token may have open. */
const maxPerCredential = 100;
/** How many a user may have open with all of them together. */
const maxPerUser = 200;

/** A wait or a stream. */
export interface LongLivedRequest {
  /** Aborted when the client disconnects, the server drains or the request is closed. */
  signal: AbortSignal;
  close(): void;
}

/** The open waits and streams. */
export interface LongLivedRequests {
  /** True once the server drains. */
  readonly draining: boolean;
  /** Throws RATE_LIMITED when the credential or its user has too many open. */
  open(signedIn: SignedIn, reply: FastifyReply): Promise<LongLivedRequest>;
  /** Ends those that are open, and those opened from now on. */
  drain(): void;
}

export function createLongLivedRequests(slots: Slots): LongLivedRequests {
  const open = new Set<AbortController>();
  let draining = false;

  return {
    get draining() {
      return draining;
    },
    async open({ user }, reply) {
      const ofCredential = { key: `waits of ${user.credential} ${user.credentialId}`, limit: maxPerCredential };
      const ofUser = { key: `waits of user ${user.id}`, limit: maxPerUser };
      const exceeded = await slots.take([ofCredential, ofUser]);
      if (exceeded) {
        throw tooManyOpen(
          exceeded === ofUser ? "Your credentials together have" : "This credential has",
          exceeded.limit,
        );
      }
      const controller = new AbortController();
      open.add(controller);
      // The client may have disconnected before the request got here.
      if (draining || reply.raw.destroyed) controller.abort();
      const onDisconnect = () => controller.abort();
      // The response's close event, unlike the request's, comes only when the client is gone or everything was sent.
      reply.raw.once("close", onDisconnect);
      return {
        signal: controller.signal,
        close() {
          if (!open.delete(controller)) return;
          reply.raw.off("close", onDisconnect);
          controller.abort();
          slots.release([ofCredential, ofUser]);
        },
      };
    },
    drain() {
      draining = true;
      for (const controller of open) controller.abort();
    },
  };
}

function tooManyOpen(who: string, max: number): DomainError {
  return new DomainError("RATE_LIMITED", `${who} ${max} waits and streams open.`, {
    hint: "End one of them, or wait for one to end.",
    retryAfterSeconds: 1,
  });
}
