import { createCollections, type MongoMigration } from "@sandgate/kit/storage/mongo";
import { letExpire } from "./expiry.mongo.ts";

export const migrations: readonly MongoMigration[] = [
  {
    name: "identity 1: users, verifications, sessions, refresh_tokens, api_tokens, keys, mails, request_windows, turns",
    run: (db) =>
      createCollections(db, {
        users: [
          { name: "name", key: { usernameKey: 1 }, unique: true },
          { name: "operators", key: { operator: 1 }, partialFilterExpression: { operator: true } },
        ],
        verifications: [
          { name: "by_user", key: { userId: 1 } },
          { name: "expiry", key: { expiresAt: 1 } },
        ],
        sessions: [
          { name: "idle", key: { idleAt: 1 } },
          { name: "ended", key: { endedAt: 1 }, partialFilterExpression: { endedAt: { $exists: true } } },
        ],
        refresh_tokens: [{ name: "expiry", key: { expiresAt: 1 } }],
        api_tokens: [
          { name: "token", key: { tokenHash: 1 }, unique: true },
          { name: "newest", key: { userId: 1, createdAt: -1, _id: -1 } },
          { name: "expiry", key: { expiresAt: 1 }, partialFilterExpression: { expiresAt: { $exists: true } } },
        ],
        keys: [{ name: "newest", key: { createdAt: -1, _id: -1 } }],
        mails: [
          { name: "by_user", key: { userId: 1, createdAt: 1 } },
          { name: "due", key: { dueAt: 1, _id: 1 } },
          { name: "age", key: { createdAt: 1 } },
        ],
        request_windows: [{ name: "end", key: { endsAt: 1 } }],
        turns: [],
      }),
  },
  { name: "identity 2: removal of what has expired", expands: true, run: letExpire },
  {
    name: "identity 3: password_resets, sessions of a user, lists of users",
    expands: true,
    run: (db) =>
      createCollections(db, {
        password_resets: [
          { name: "by_user", key: { userId: 1 } },
          { name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 },
        ],
        sessions: [{ name: "newest", key: { userId: 1, createdAt: -1, _id: -1 } }],
        users: [
          { name: "newest", key: { createdAt: -1, _id: -1 } },
          { name: "unverified", key: { verifiedAt: 1, createdAt: 1 } },
        ],
      }),
  },
  {
    name: "identity 4: slots that facades hold",
    expands: true,
    run: (db) =>
      createCollections(db, { held_slots: [{ name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 }] }),
  },
  {
    name: "identity 5: sso_attempts, external_identities",
    expands: true,
    run: (db) =>
      createCollections(db, {
        sso_attempts: [{ name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 }],
        external_identities: [{ name: "by_user", key: { userId: 1 } }],
      }),
  },
  {
    name: "identity: networks that users signed in from",
    expands: true,
    run: (db) =>
      createCollections(db, {
        known_networks: [
          { name: "by_user", key: { userId: 1 } },
          { name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 },
        ],
      }),
  },
  {
    name: "identity: second_factors",
    expands: true,
    run: (db) =>
      createCollections(db, {
        second_factors: [
          { name: "by_user", key: { userId: 1 }, unique: true },
          { name: "removal", key: { removeAt: 1 }, expireAfterSeconds: 0 },
        ],
      }),
  },
  {
    name: "identity: removed_identities, lists of external_identities",
    expands: true,
    run: (db) =>
      createCollections(db, {
        removed_identities: [{ name: "by_user", key: { userId: 1 } }],
        external_identities: [{ name: "newest", key: { userId: 1, createdAt: -1, _id: 1 } }],
      }),
  },
];
