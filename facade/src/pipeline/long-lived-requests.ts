import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply } from "fastify";
import type { SignedIn } from "./signed-in.ts";

/** How many waits and streams a credential may have open. */
const maxPerCredential = 100;

/** A request that stays open for long. */
export interface LongLivedRequest {
  /** Aborted when the client goes away, the server drains or the call is closed. */
  signal: AbortSignal;
  close(): void;
}

/** The waits and streams that are open. */
export interface LongLivedRequests {
  /** True once nothing may stay open. */
  readonly draining: boolean;
  /** Throws RATE_LIMITED when the credential has too many open. */
  open(signedIn: SignedIn, reply: FastifyReply): LongLivedRequest;
  /** Ends all that are open and those to come. */
  drain(): void;
}

export function createLongLivedRequests(): LongLivedRequests {
  const counts = new Map<string, number>();
  const open = new Set<AbortController>();
  let draining = false;

  return {
    get draining() {
      return draining;
    },
    open({ user }, reply) {
      const key = `${user.credential} ${user.credentialId}`;
      const count = counts.get(key) ?? 0;
      if (count >= maxPerCredential) {
        throw new DomainError("RATE_LIMITED", `This credential has ${maxPerCredential} waits and streams open.`, {
          hint: "End one of them, or wait for one to end.",
          retryAfterSeconds: 1,
        });
      }
      counts.set(key, count + 1);
      const controller = new AbortController();
      open.add(controller);
      // The client may have gone before it came to this.
      if (draining || reply.raw.destroyed) controller.abort();
      const onGone = () => controller.abort();
      // The response's close, unlike the request's, comes only when the client is gone or all was sent.
      reply.raw.once("close", onGone);
      return {
        signal: controller.signal,
        close() {
          if (!open.delete(controller)) return;
          reply.raw.off("close", onGone);
          controller.abort();
          const left = (counts.get(key) ?? 1) - 1;
          if (left > 0) counts.set(key, left);
          else counts.delete(key);
        },
      };
    },
    drain() {
      draining = true;
      for (const controller of open) controller.abort();
    },
  };
}
