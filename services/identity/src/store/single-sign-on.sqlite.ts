import type { SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import { readLinks, type singleSignOnTransactions } from "./single-sign-on.sqlite.transactions.ts";
import type { SingleSignOn } from "./single-sign-on.ts";

export function createSingleSignOn({ read, write }: SqliteDatabase<typeof singleSignOnTransactions>): SingleSignOn {
  return {
    addAttempt: write.addSsoAttempt,
    takeAttempt: write.takeSsoAttempt,
    resolveUser: write.resolveExternalUser,
    unlink: write.unlinkIdentity,

    async list(userId) {
      return readLinks(read, userId).map(({ subject: _, ...link }) => link);
    },
  };
}
