import type { Budget, Consumed, Overspent } from "../domain/rate-counters.ts";

/** Counters behind the limits on requests, sign-ins and mails, the same for all replicas and facades. */
export interface RateCounters {
  /** Consumes up to `wanted` of the budget's window. */
  consume(budget: Budget, wanted: number, now: Date): Promise<Consumed>;
  /** Returns one to the budget, if its window is still the one that ends then. */
  giveBack(budget: Pick<Budget, "key">, endsAt: Date): Promise<void>;
  /**
   * Consumes one of each budget, or none when one of them has nothing left; the first of those is the answer. No key
   * twice.
   */
  consumeEach(budgets: readonly Budget[], now: Date): Promise<Overspent | undefined>;
}
