import type { Logger } from "@sandgate/kit/base/logging";
import { networksOf } from "@sandgate/kit/base/networks";
import { hourMs } from "@sandgate/kit/base/time";
import { budget, rateLimited } from "../domain/rate-counters.ts";
import { usernameKey } from "../domain/users.ts";
import type { RateCounters } from "../store/rate-counters.ts";

/** Why a mail is sent: for a registration, or for a link that the user of an account requests. */
type MailPurpose = "registration" | "verification" | "reset";

/**
 * Which share of the mails to a mailbox, and of all mails together, each purpose may use. Registrations leave some to
 * links: otherwise others could keep a user from setting a password. Users without a verified account leave some to
 * those with one.
 */
const shares: Record<MailPurpose, { ofMailbox: number; ofAll: number }> = {
  registration: { ofMailbox: 0.6, ofAll: 0.8 },
  verification: { ofMailbox: 1, ofAll: 0.8 },
  reset: { ofMailbox: 1, ofAll: 1 },
};

/** Mails in an hour; 0: no limit. */
export interface MailLimits {
  perMailbox: number;
  perNetwork: number;
  inAll: number;
}

/** Limits the mails that requests without a credential cause. Notices to a signed-in user are not counted. */
export interface MailBudgets {
  /**
   * Counts a request that may send a mail, whether or not it does. A request of unknown address is not counted. Throws
   * RATE_LIMITED.
   */
  countRequest(address: string | undefined): Promise<void>;
  /**
   * Whether the mailbox may get another mail. Addresses that differ only in what follows a plus sign are one mailbox.
   * The answer must not reach the client, since it would reveal an account.
   */
  mayMail(username: string, purpose: MailPurpose): Promise<boolean>;
}

export function createMailBudgets(o: {
  store: { readonly rateCounters: RateCounters };
  limits: MailLimits;
  logger: Logger;
  now: () => Date;
}): MailBudgets {
  const { store, limits, logger, now } = o;
  let warnedUntil = new Date(0);

  return {
    async countRequest(address) {
      if (limits.perNetwork === 0 || address === undefined) return;
      const at = now();
      const overspent = await store.rateCounters.consumeEach(
        networksOf(address).map(({ name, share }) => budget(`mails from ${name}`, limits.perNetwork * share, hourMs)),
        at,
      );
      if (overspent) throw rateLimited("Too many mails were requested from your address.", overspent, at);
    },

    async mayMail(username, purpose) {
      const at = now();
      const inAll = Math.ceil(limits.inAll * shares[purpose].ofAll);
      const toMailbox = Math.ceil(limits.perMailbox * shares[purpose].ofMailbox);
      const budgets = [
        ...(limits.inAll > 0 ? [budget("mails", inAll, hourMs)] : []),
        ...(limits.perMailbox > 0 ? [budget(`mails to ${mailboxOf(username)}`, toMailbox, hourMs)] : []),
      ];
      const overspent = await store.rateCounters.consumeEach(budgets, at);
      if (!overspent) return true;
      if (limits.inAll > 0 && overspent.index === 0 && at >= warnedUntil) {
        warnedUntil = overspent.endsAt;
        logger.warn({ until: warnedUntil, purpose }, "the hour's mails are used up; no more are sent until then");
      }
      return false;
    },
  };
}

/**
 * The name without case and without a sub-address (RFC 5233): `Ann+shop@example.com` is a mailbox of `ann@example.com`.
 */
function mailboxOf(username: string): string {
  const name = usernameKey(username);
  const at = name.lastIndexOf("@");
  const plus = name.indexOf("+");
  return plus > 0 && plus < at ? name.slice(0, plus) + name.slice(at) : name;
}
