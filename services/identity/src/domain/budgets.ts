import { hash } from "node:crypto";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Budget, Overspent } from "../store/store.ts";

/** How often what the text names may happen. */
export function budget(what: string, limit: number, windowMs: number): Budget {
  return { key: hashKey(what), limit, windowMs };
}

/** The stored form of a text: of one length, and not to be read. */
export function hashKey(text: string): Uint8Array {
  return new Uint8Array(hash("sha256", text, "buffer"));
}

export function rateLimited(message: string, { endsAt }: Overspent, now: Date): DomainError {
  return new DomainError("RATE_LIMITED", message, {
    retryAfterSeconds: Math.ceil((endsAt.getTime() - now.getTime()) / 1000),
  });
}
