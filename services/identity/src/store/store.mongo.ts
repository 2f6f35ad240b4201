import { type MongoDatabase, openMongo } from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { createApiTokens } from "./api-tokens.mongo.ts";
import { createKeys } from "./keys.mongo.ts";
import { createKnownNetworks } from "./known-networks.mongo.ts";
import { createMails } from "./mails.mongo.ts";
import { migrations } from "./migrations.mongo.ts";
import { createPasswords } from "./passwords.mongo.ts";
import { createRateCounters } from "./rate-counters.mongo.ts";
import { createRegistrations } from "./registrations.mongo.ts";
import { createOtpAttempts, createSecondFactors } from "./second-factors.mongo.ts";
import { createRefreshTokens, createSessions } from "./sessions.mongo.ts";
import { createSingleSignOn } from "./single-sign-on.mongo.ts";
import { createSlotLeases } from "./slot-leases.mongo.ts";
import { type IdentityStore, sealedColumns } from "./store.ts";
import { createUsers } from "./users.mongo.ts";

/** Opens the service's database on a replica set, creating and migrating it as needed. */
export async function openMongoStore(options: MongoStoreOptions): Promise<IdentityStore> {
  const database = await openMongo({ ...options, migrations });
  return createMongoStore(database);
}

/** The store on a database that has had its migrations. */
export function createMongoStore(database: MongoDatabase): IdentityStore {
  return {
    ...serviceStoreOf(database, sealedColumns),
    users: createUsers(database),
    registrations: createRegistrations(database),
    passwords: createPasswords(database),
    sessions: createSessions(database),
    refreshTokens: createRefreshTokens(database),
    apiTokens: createApiTokens(database),
    keys: createKeys(database),
    mails: createMails(database),
    secondFactors: createSecondFactors(database),
    otpAttempts: createOtpAttempts(database),
    singleSignOn: createSingleSignOn(database),
    knownNetworks: createKnownNetworks(database),
    rateCounters: createRateCounters(database),
    slotLeases: createSlotLeases(database),
    // MongoDB removes what has expired by itself, going by `removeAt`.
    expiry: { sweep: async () => 0 },
  };
}
