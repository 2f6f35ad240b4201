import type { Logger } from "@sandgate/kit/base/logging";
import { networksOf } from "@sandgate/kit/base/networks";
import { dayMs, hourMs } from "@sandgate/kit/base/time";
import { type Budget, budget, rateLimited } from "../domain/rate-counters.ts";
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
  registration: { ofMailbox: 0.6, ofAll: 0.6 },
  verification: { ofMailbox: 1, ofAll: 0.6 },
  reset: { ofMailbox: 1, ofAll: 0.8 },
};
/** Which share of the mails to a mailbox requests from one address may cause, so that they leave some to others. */
const sourceShare = 0.6;
/** Which share of all mails only newcomers may use: networks that have hardly asked for any. */
const newcomersShare = 0.2;
/** How many mails a network may ask for in a day as a newcomer, and how many of them to one mailbox. */
const newcomerMails = { inAll: 3, toMailbox: 1 };

/** Mails in an hour; 0: no limit. */
export interface MailLimits {
  perMailbox: number;
  perNetwork: number;
  inAll: number;
}

interface MailRequest {
  username: string;
  purpose: MailPurpose;
  /** Where the request came from; undefined where that isn't known. */
  address: string | undefined;
  fromOwnNetwork?: boolean;
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
   * What others have asked for doesn't count for a request from one of the account's own networks. Elsewhere it does,
   * and then newcomers may have some more: a party that uses up a mailbox, or all mails, has networks that soon are
   * none any more, and its victim's still is. The answer must not reach the client, since it would reveal an account.
   */
  mayMail(request: MailRequest): Promise<boolean>;
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

    async mayMail({ username, purpose, address, fromOwnNetwork = false }) {
      const at = now();
      const { ofAll, ofMailbox } = shares[purpose];
      const mailbox = mailboxOf(username);
      const networks = address === undefined ? [] : networksOf(address);
      const [source, widest] = [networks.at(0)?.name, networks.at(-1)?.name];
      const inAll = (what: string, share: number) => budgetOf(what, limits.inAll * share);
      const toMailbox = (what: string, share: number) => budgetOf(`${what} to ${mailbox}`, limits.perMailbox * share);
      const fromSource = source === undefined ? [] : toMailbox(`mails from ${source}`, sourceShare);
      const shared = fromOwnNetwork ? [] : toMailbox("mails", ofMailbox);
      const overspent = await store.rateCounters.consumeEach([...inAll("mails", ofAll), ...fromSource, ...shared], at);
      if (!overspent) return true;
      if (limits.inAll > 0 && overspent.index === 0 && at >= warnedUntil) {
        warnedUntil = overspent.endsAt;
        logger.warn(
          { until: warnedUntil, purpose },
          "the hour's mails are used up; newcomers alone get more until then",
        );
      }
      if (widest === undefined) return false;
      const asNewcomer = [
        ...inAll("first mails", newcomersShare),
        ...fromSource,
        ...toMailbox("first mails", ofMailbox),
        budget(`first mails from ${widest}`, newcomerMails.inAll, dayMs),
        budget(`first mails from ${widest} to ${mailbox}`, newcomerMails.toMailbox, dayMs),
      ];
      return (await store.rateCounters.consumeEach(asNewcomer, at)) === undefined;
    },
  };
}

/** None for no limit. */
function budgetOf(what: string, limit: number): Budget[] {
  return limit === 0 ? [] : [budget(what, Math.ceil(limit), hourMs)];
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
