import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply } from "fastify";
import type { SignedIn } from "./signed-in.ts";

/** How many waits and streams each credential may have open. */
const maxPerCredential = 100;

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
  /** Throws RATE_LIMITED when the credential has too many open. */
  open(signedIn: SignedIn, reply: FastifyReply): LongLivedRequest;
  /** Ends those that are open, and those opened from now on. */
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
