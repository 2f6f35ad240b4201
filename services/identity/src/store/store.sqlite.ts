import { type SqliteStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { openSqlite } from "@sandgate/kit/storage/sqlite";
import { createApiTokens } from "./api-tokens.sqlite.ts";
import { createKeys } from "./keys.sqlite.ts";
import { createKnownNetworks } from "./known-networks.sqlite.ts";
import { migrations } from "./migrations.sqlite.ts";
import { createPasswords } from "./passwords.sqlite.ts";
import { createRegistrations } from "./registrations.sqlite.ts";
import { createOtpAttempts, createSecondFactors } from "./second-factors.sqlite.ts";
import { createRefreshTokens, createSessions } from "./sessions.sqlite.ts";
import { createSingleSignOn } from "./single-sign-on.sqlite.ts";
import type { transactions } from "./store.sqlite.transactions.ts";
import { type IdentityStore, sealedColumns } from "./store.ts";
import { createUsers } from "./users.sqlite.ts";

/** Opens the service's SQLite file, creating and migrating it as needed. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<IdentityStore> {
  const database = await openSqlite<typeof transactions>({
    ...options,
    migrations,
    transactions: new URL("./store.sqlite.transactions.ts", import.meta.url),
  });
  const { write } = database;

  return {
    ...serviceStoreOf(database, sealedColumns),
    users: createUsers(database),
    registrations: createRegistrations(database),
    passwords: createPasswords(database),
    sessions: createSessions(database),
    refreshTokens: createRefreshTokens(database),
    apiTokens: createApiTokens(database),
    keys: createKeys(database),
    secondFactors: createSecondFactors(database),
    otpAttempts: createOtpAttempts(database),
    singleSignOn: createSingleSignOn(database),
    knownNetworks: createKnownNetworks(database),
    // These read nothing outside of a transaction.
    mails: {
      add: write.addMailOnce,
      takeDue: write.takeDueMails,
      finish: write.finishMail,
      postpone: write.postponeMail,
    },
    rateCounters: { consume: write.consume, consumeEach: write.consumeEach, giveBack: write.giveBackConsumed },
    slotLeases: { acquire: write.acquireSlots },
    expiry: { sweep: write.sweep },
  };
}
