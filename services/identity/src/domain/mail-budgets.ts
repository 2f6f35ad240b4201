import type { Logger } from "@sandgate/kit/base/logging";
import { networksOf } from "@sandgate/kit/base/networks";
import { hourMs } from "@sandgate/kit/base/time";
import type { LimitStore } from "../store/store.ts";
import { budget, rateLimited } from "./budgets.ts";
import { usernameKey } from "./users.ts";

/** What is left of the installation's mails for the links of verified users when strangers register in masses. */
const strangersShare = 0.8;

/** Mails in an hour; 0: no limit. */
export interface MailLimits {
  perMailbox: number;
  perNetwork: number;
  inAll: number;
}

/** Limits the mails that requests without a credential cause. Notices to a signed-in user are not counted. */
export interface MailBudgets {
  /** Counts a request that may send a mail, whether or not it will. Throws RATE_LIMITED. One whose address isn't known counts for none. */
  countRequest(address: string | undefined): Promise<void>;
  /**
   * Whether the mailbox may get another mail. Mailboxes are one when they differ only in what follows a plus sign. Who asked
   * must not learn the answer, which tells of an account.
   */
  mayMail(username: string, to: "stranger" | "user"): Promise<boolean>;
}

export function createMailBudgets(o: {
  store: LimitStore;
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
      const overspent = await store.spend(
        networksOf(address).map(({ name, share }) => budget(`mails from ${name}`, limits.perNetwork * share, hourMs)),
        at,
      );
      if (overspent) throw rateLimited("Too many mails were requested from your address.", overspent, at);
    },

    async mayMail(username, to) {
      const at = now();
      const inAll = to === "user" ? limits.inAll : Math.ceil(limits.inAll * strangersShare);
      const budgets = [
        ...(limits.inAll > 0 ? [budget("mails", inAll, hourMs)] : []),
        ...(limits.perMailbox > 0 ? [budget(`mails to ${mailboxOf(username)}`, limits.perMailbox, hourMs)] : []),
      ];
      const overspent = await store.spend(budgets, at);
      if (!overspent) return true;
      if (limits.inAll > 0 && overspent.index === 0 && at >= warnedUntil) {
        warnedUntil = overspent.endsAt;
        logger.warn({ until: warnedUntil, to }, "the mails of the hour are used up; no more are sent until then");
      }
      return false;
    },
  };
}

/** The name without case and without a sub-address (RFC 5233): `Ann+shop@example.com` is a mailbox of `ann@example.com`. */
function mailboxOf(username: string): string {
  const name = usernameKey(username);
  const at = name.lastIndexOf("@");
  const plus = name.indexOf("+");
  return plus > 0 && plus < at ? name.slice(0, plus) + name.slice(at) : name;
}
