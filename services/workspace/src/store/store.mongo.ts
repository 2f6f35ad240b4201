import { createCollections, type MongoMigration, openMongo } from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { createAccounts } from "./accounts.mongo.ts";
import { createDeletions } from "./deletions.mongo.ts";
import { createMembers } from "./members.mongo.ts";
import type { WorkspaceStore } from "./store.ts";
import { createWorkspaces } from "./workspaces.mongo.ts";

const migrations: readonly MongoMigration[] = [
  {
    name: "workspace 1: workspaces, members, accounts, deletions",
    run: (db) =>
      createCollections(db, {
        workspaces: [],
        members: [
          { name: "member", key: { workspaceId: 1, userId: 1 }, unique: true },
          { name: "by_joining", key: { workspaceId: 1, joinedAt: -1, userId: -1 } },
          { name: "by_user", key: { userId: 1, workspaceCreatedAt: -1, workspaceId: -1 } },
        ],
        accounts: [],
        deletions: [
          { name: "due", key: { open: 1, announceAgainAt: 1 }, partialFilterExpression: { open: true } },
          { name: "oldest", key: { open: 1, deletedAt: 1 }, partialFilterExpression: { open: true } },
        ],
      }),
  },
  {
    name: "workspace 2: workspaces by owner",
    expands: true,
    run: (db) => createCollections(db, { members: [{ name: "by_role", key: { userId: 1, role: 1 } }] }),
  },
  {
    name: "workspace 3: whom workspaces are charged to",
    expands: true,
    run: (db) => createCollections(db, { workspaces: [{ name: "by_charge", key: { chargedTo: 1 } }] }),
  },
  {
    // The next version needs neither by_user nor by_role.
    name: "workspace 4: a user's workspaces by role",
    expands: true,
    run: (db) =>
      createCollections(db, {
        members: [{ name: "of_user", key: { userId: 1, role: -1, workspaceCreatedAt: -1, workspaceId: -1 } }],
      }),
  },
  {
    name: "workspace 5: deleted workspaces and accounts by age",
    expands: true,
    run: (db) =>
      createCollections(db, {
        deletions: [
          { name: "completed", key: { completedAt: 1 }, partialFilterExpression: { completedAt: { $exists: true } } },
        ],
        accounts: [
          { name: "deleted", key: { departedAt: 1 }, partialFilterExpression: { departedAt: { $exists: true } } },
        ],
      }),
  },
];

/** Opens the service's database on a replica set, creating and migrating it as needed. */
export async function openMongoStore(options: MongoStoreOptions): Promise<WorkspaceStore> {
  const database = await openMongo({ ...options, migrations });
  return {
    ...serviceStoreOf(database),
    workspaces: createWorkspaces(database),
    members: createMembers(database),
    accounts: createAccounts(database),
    deletions: createDeletions(database),
  };
}
