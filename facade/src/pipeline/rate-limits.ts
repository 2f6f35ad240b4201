import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply, FastifyRequest } from "fastify";
import { networkOf, type RateLimiter, type RateLimitStatus } from "./rate-limit.ts";
import type { SignedIn } from "./signed-in.ts";

export interface RateLimits {
  /** Counts a request against its address. Throws RATE_LIMITED. */
  countAddress(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Sets the RateLimit headers of the address without counting. */
  showAddress(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts a request against its user's sessions or its API token, and against its user. Throws RATE_LIMITED. */
  countCredential(signedIn: SignedIn, reply: FastifyReply): Promise<void>;
  countSignInOfAddress(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts an attempt to sign in to an account, or to send it a mail. Throws RATE_LIMITED. */
  countAccount(purpose: "sign-in" | "mail", username: string, reply: FastifyReply): Promise<void>;
}

/** What a user may do with all sessions and tokens together, in what one of them may: else tokens would multiply the limit. */
const userFactor = 2;

/** The rate limits of the public API. A response's RateLimit headers show the limit with the fewest requests left. */
export function createRateLimits(o: { limiter: RateLimiter; perMinute: number; signInsPerMinute: number }): RateLimits {
  async function count(reply: FastifyReply, key: string, limit: number, message: string): Promise<void> {
    if (limit === 0) return;
    judge(reply, await o.limiter.take(key, limit), message);
  }

  function judge(reply: FastifyReply, status: RateLimitStatus, message: string): void {
    show(reply, status);
    if (status.allowed) return;
    throw new DomainError("RATE_LIMITED", message, { retryAfterSeconds: status.resetSeconds });
  }

  return {
    countAddress: (request, reply) =>
      count(reply, `address ${networkOf(request.ip)}`, o.perMinute, "Too many requests from your address."),
    async showAddress(request, reply) {
      if (o.perMinute > 0) show(reply, await o.limiter.peek(`address ${networkOf(request.ip)}`, o.perMinute));
    },
    async countCredential({ user }, reply) {
      if (o.perMinute === 0) return;
      const key = user.credential === "session" ? `user ${user.id}` : `token ${user.credentialId}`;
      const [ofCredential, ofUser] = await o.limiter.takeAll([
        { key, limit: o.perMinute },
        { key: `all of user ${user.id}`, limit: o.perMinute * userFactor },
      ]);
      if (ofCredential) judge(reply, ofCredential, "Too many requests with this credential.");
      if (ofUser) judge(reply, ofUser, "Too many requests with all your credentials together.");
    },
    countSignInOfAddress: (request, reply) =>
      count(
        reply,
        `sign-in address ${networkOf(request.ip)}`,
        o.signInsPerMinute,
        "Too many sign-ins from your address.",
      ),
    countAccount: (purpose, username, reply) =>
      count(
        reply,
        `${purpose} account ${username.trim().normalize("NFC").toLowerCase()}`,
        o.signInsPerMinute,
        "Too many attempts for this account.",
      ),
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
