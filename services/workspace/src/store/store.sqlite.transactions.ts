import { accountTransactions } from "./accounts.sqlite.transactions.ts";
import { deletionTransactions } from "./deletions.sqlite.transactions.ts";
import { memberTransactions } from "./members.sqlite.transactions.ts";
import { workspaceTransactions } from "./workspaces.sqlite.transactions.ts";

export const transactions = {
  ...workspaceTransactions,
  ...memberTransactions,
  ...accountTransactions,
  ...deletionTransactions,
};
