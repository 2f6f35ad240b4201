import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply } from "fastify";
import type { SignedIn } from "./signed-in.ts";

/** How many waits and streams each session or API token may have open in this process. */
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
  open(signedIn: SignedIn, reply: FastifyReply): LongLivedRequest;
  /** Ends those that are open, and those opened from now on. */
  drain(): void;
}

export function createLongLivedRequests(): LongLivedRequests {
  const ofCredentials = new Map<string, number>();
  const ofUsers = new Map<string, number>();
  const open = new Set<AbortController>();
  let draining = false;

  return {
    get draining() {
      return draining;
    },
    open({ user }, reply) {
      const key = `${user.credential} ${user.credentialId}`;
      if ((ofCredentials.get(key) ?? 0) >= maxPerCredential) throw tooManyOpen("This credential has", maxPerCredential);
      if ((ofUsers.get(user.id) ?? 0) >= maxPerUser) throw tooManyOpen("Your credentials together have", maxPerUser);
      add(ofCredentials, key, 1);
      add(ofUsers, user.id, 1);
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
          add(ofCredentials, key, -1);
          add(ofUsers, user.id, -1);
        },
      };
    },
    drain() {
      draining = true;
      for (const controller of open) controller.abort();
    },
  };
}

function add(counts: Map<string, number>, key: string, change: number): void {
  const count = (counts.get(key) ?? 0) + change;
  if (count > 0) counts.set(key, count);
  else counts.delete(key);
}

function tooManyOpen(who: string, max: number): DomainError {
  return new DomainError("RATE_LIMITED", `${who} ${max} waits and streams open.`, {
    hint: "End one of them, or wait for one to end.",
    retryAfterSeconds: 1,
  });
}
