import { purgeTransactions } from "@sandgate/kit/workspaces/sqlite-guards";
import { auditTransactions } from "./audit.sqlite.transactions.ts";
import { retentionTransactions } from "./retention.sqlite.transactions.ts";
import { sourceTransactions } from "./sources.sqlite.transactions.ts";

export const transactions = {
  ...sourceTransactions,
  ...retentionTransactions,
  ...purgeTransactions,
  ...auditTransactions,
};
