import type { Transactions } from "@sandgate/kit/storage/sqlite";
import { apiTokenTransactions } from "./api-tokens.sqlite.transactions.ts";
import { expiryTransactions } from "./expiry.sqlite.transactions.ts";
import { keyTransactions } from "./keys.sqlite.transactions.ts";
import { knownNetworkTransactions } from "./known-networks.sqlite.transactions.ts";
import { mailTransactions } from "./mails.sqlite.transactions.ts";
import { passwordTransactions } from "./passwords.sqlite.transactions.ts";
import { rateCounterTransactions } from "./rate-counters.sqlite.transactions.ts";
import { registrationTransactions } from "./registrations.sqlite.transactions.ts";
import { secondFactorTransactions } from "./second-factors.sqlite.transactions.ts";
import { sessionTransactions } from "./sessions.sqlite.transactions.ts";
import { singleSignOnTransactions } from "./single-sign-on.sqlite.transactions.ts";
import { slotLeaseTransactions } from "./slot-leases.sqlite.transactions.ts";
import { userTransactions } from "./users.sqlite.transactions.ts";

/** What the writer thread runs; the ports say what each one means. */
export const transactions = {
  ...userTransactions,
  ...registrationTransactions,
  ...passwordTransactions,
  ...sessionTransactions,
  ...apiTokenTransactions,
  ...keyTransactions,
  ...mailTransactions,
  ...secondFactorTransactions,
  ...singleSignOnTransactions,
  ...knownNetworkTransactions,
  ...rateCounterTransactions,
  ...slotLeaseTransactions,
  ...expiryTransactions,
} satisfies Transactions;
