import { DomainError } from "@sandgate/kit/base/domain-error";
import { networksOf } from "@sandgate/kit/base/networks";
import type { FastifyReply, FastifyRequest } from "fastify";
import { signedInOf } from "../base/request-context.ts";
import type { SignedIn } from "../base/signed-in.ts";
import type { RateLimiter, RateLimitStatus } from "./rate-limiter.ts";

export interface RequestLimits {
  /** Counts a request against its address and the networks around it. Throws RATE_LIMITED. */
  countAddress(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Sets the RateLimit headers of the address without counting. */
  showAddress(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts a request against its user's sessions or its API token, and against its user. Throws RATE_LIMITED. */
  countCredential(signedIn: SignedIn, reply: FastifyReply): Promise<void>;
  /**
   * Counts a sign-in, or a request that may send a mail, against its address and the networks around it. Throws
   * RATE_LIMITED.
   */
  countAttempt(purpose: "sign-in" | "mail", request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /**
   * Counts a request that may create or change something against its user, and its workspace if it has one. Throws
   * RATE_LIMITED.
   */
  countChange(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts the use of a signed-in user's password against that user. Throws RATE_LIMITED. */
  countPasswordUse(userId: string, reply: FastifyReply): Promise<void>;
}

/** The limit of all of a user's sessions and tokens, in limits of one of them. Without it each token would add one. */
const userFactor = 2;

/** The changes in a workspace, in limits of one user, so that a member alone doesn't keep the others from theirs. */
const workspaceFactor = 5;
const changeHint =
  "This limits how much is created and changed within an hour; you can still read, stop and delete. Wait for the number of seconds in the Retry-After header, or ask the operator for more.";

const attemptMessages = {
  "sign-in": "Too many sign-ins from your address.",
  mail: "Too many requests for mails from your address.",
};

/** The rate limits of the public API. A response's RateLimit headers show the limit with the fewest requests left. */
export function createRequestLimits(o: {
  ofMinutes: RateLimiter;
  ofHours: RateLimiter;
  perMinute: number;
  signInsPerMinute: number;
  changesPerHour: number;
}): RequestLimits {
  async function countNetworks(
    request: FastifyRequest,
    reply: FastifyReply,
    limited: { purpose: string; perMinute: number; message: string },
  ): Promise<void> {
    if (limited.perMinute === 0) return;
    const limits = networksOf(request.ip).map(({ name, share }) => ({
      key: `${limited.purpose} ${name}`,
      limit: limited.perMinute * share,
    }));
    for (const status of await o.ofMinutes.consumeAll(limits)) judge(reply, status, limited.message);
  }

  function judge(reply: FastifyReply, status: RateLimitStatus, message: string, hint?: string): void {
    show(reply, status);
    if (status.allowed) return;
    throw new DomainError("RATE_LIMITED", message, { retryAfterSeconds: status.resetSeconds, hint });
  }

  return {
    countAddress: (request, reply) =>
      countNetworks(request, reply, {
        purpose: "address",
        perMinute: o.perMinute,
        message: "Too many requests from your address.",
      }),
    async showAddress(request, reply) {
      if (o.perMinute > 0)
        show(reply, await o.ofMinutes.peek(`address ${networksOf(request.ip)[0].name}`, o.perMinute));
    },
    async countCredential({ user }, reply) {
      if (o.perMinute === 0) return;
      const key = user.credential === "session" ? `user ${user.id}` : `token ${user.credentialId}`;
      const [ofCredential, ofUser] = await o.ofMinutes.consumeAll([
        { key, limit: o.perMinute },
        { key: `all of user ${user.id}`, limit: o.perMinute * userFactor },
      ]);
      if (ofCredential) judge(reply, ofCredential, "Too many requests with this credential.");
      if (ofUser) judge(reply, ofUser, "Too many requests with all your credentials together.");
    },
    countAttempt: (purpose, request, reply) =>
      countNetworks(request, reply, {
        purpose: `${purpose} address`,
        perMinute: o.signInsPerMinute,
        message: attemptMessages[purpose],
      }),
    async countChange(request, reply) {
      if (o.changesPerHour === 0) return;
      const workspaceId = request.inWorkspace?.workspaceId;
      const [ofUser, ofWorkspace] = await o.ofHours.consumeAll([
        { key: `changes of user ${signedInOf(request).user.id}`, limit: o.changesPerHour },
        ...(workspaceId === undefined
          ? []
          : [{ key: `changes in workspace ${workspaceId}`, limit: o.changesPerHour * workspaceFactor }]),
      ]);
      if (ofUser) judge(reply, ofUser, "You have changed too much within an hour.", changeHint);
      if (ofWorkspace) judge(reply, ofWorkspace, "Too much was changed in this workspace within an hour.", changeHint);
    },
    async countPasswordUse(userId, reply) {
      if (o.signInsPerMinute === 0) return;
      judge(
        reply,
        await o.ofMinutes.consume(`password of ${userId}`, o.signInsPerMinute),
        "Too many attempts for this account.",
      );
    },
  };
}

function show(reply: FastifyReply, status: RateLimitStatus): void {
  const shown = reply.getHeader("ratelimit-remaining");
  if (typeof shown === "number" && shown <= status.remaining && status.allowed) return;
  reply.headers({
    "ratelimit-limit": status.limit,
    "ratelimit-remaining": status.remaining,
    "ratelimit-reset": status.resetSeconds,
  });
}
