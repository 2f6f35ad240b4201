import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply, FastifyRequest } from "fastify";
import { networkOf, type RateLimiter, type RateLimitStatus } from "./rate-limit.ts";
import type { SignedIn } from "./signed-in.ts";

export interface RateLimits {
  /** Counts a request against its address. Throws RATE_LIMITED. */
  countAddress(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Sets the RateLimit headers of the address without counting. */
  showAddress(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts a request against its user or API token. Throws RATE_LIMITED. */
  countCredential(signedIn: SignedIn, reply: FastifyReply): Promise<void>;
  countSignInOfAddress(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts an attempt to sign in to an account, or to send it a mail. Throws RATE_LIMITED. */
  countAccount(purpose: "sign-in" | "mail", username: string, reply: FastifyReply): Promise<void>;
}

/** The rate limits of the public API. A response's RateLimit headers show the limit with the fewest requests left. */
export function createRateLimits(o: { limiter: RateLimiter; perMinute: number; signInsPerMinute: number }): RateLimits {
  async function count(reply: FastifyReply, key: string, limit: number, message: string): Promise<void> {
    if (limit === 0) return;
    const status = await o.limiter.take(key, limit);
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
    countCredential: ({ user }, reply) => {
      const key = user.credential === "session" ? `user ${user.id}` : `token ${user.credentialId}`;
      return count(reply, key, o.perMinute, "Too many requests with this credential.");
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
