import { createCollections, type MongoMigration, openMongo } from "@sandgate/kit/storage/mongo";
import { type MongoStoreOptions, serviceStoreOf } from "@sandgate/kit/storage/open-store";
import { createPurges, guardIndexes, purgedIndex } from "@sandgate/kit/workspaces/mongo-guards";
import { auditIndexMigration, auditMigration, createAuditLog } from "./audit.mongo.ts";
import { createChunks } from "./chunks.mongo.ts";
import { collectionsOf } from "./documents.mongo.ts";
import { createRetention } from "./retention.mongo.ts";
import { createSources } from "./sources.mongo.ts";
import type { TelemetryStore } from "./store.ts";

const migrations: readonly MongoMigration[] = [
  {
    name: "telemetry 1: guards, sandboxes, chunks",
    run: (db) =>
      createCollections(db, {
        guards: guardIndexes,
        sandboxes: [
          { name: "by_workspace", key: { workspaceId: 1 } },
          { name: "by_update", key: { chunks: 1, updatedAt: 1 } },
        ],
        chunks: [
          { name: "by_sequence", key: { sandboxId: 1, kind: 1, lastSequence: 1 }, unique: true },
          { name: "by_time", key: { sandboxId: 1, kind: 1, lastUs: -1, firstSequence: -1 } },
          { name: "by_age", key: { lastUs: 1 } },
        ],
      }),
  },
  {
    name: "telemetry 2: what workspaces have, and an index for windows",
    expands: true,
    async run(db) {
      await createCollections(db, {
        guards: [{ name: "by_log_bytes", key: { logBytes: 1 }, partialFilterExpression: { logBytes: { $gt: 0 } } }],
        sandboxes: [
          {
            name: "ended_with_logs",
            key: { workspaceId: 1, updatedAt: 1 },
            partialFilterExpression: { ended: true, textBytes: { $gt: 0 } },
          },
          {
            name: "with_logs",
            key: { workspaceId: 1, oldestUs: 1 },
            partialFilterExpression: { textBytes: { $gt: 0 } },
          },
        ],
        // In place of by_time, which a later version removes.
        chunks: [
          {
            name: "by_window",
            key: { sandboxId: 1, kind: 1, lastUs: -1, firstSequence: -1, firstUs: 1, stdoutRows: 1, stderrRows: 1 },
          },
        ],
      });
      const ended = { $allElementsTrue: ["$sources.final"] };
      await collectionsOf(db).sandboxes.updateMany({ ended: { $exists: false } }, [{ $set: { ended } }], {
        hint: { _id: 1 },
      });
    },
  },
  auditMigration,
  {
    name: "telemetry 4: purged workspaces by age",
    expands: true,
    run: (db) => createCollections(db, { guards: [purgedIndex] }),
  },
  auditIndexMigration,
];

/** Opens the database of logs and samples on a replica set, after creating or migrating it. */
export async function openMongoStore(o: MongoStoreOptions): Promise<TelemetryStore> {
  const database = await openMongo({ ...o, migrations });
  const { write } = database;
  const collections = collectionsOf(database.db);
  return {
    ...serviceStoreOf(database),
    sources: createSources(collections, write),
    chunks: createChunks(collections),
    retention: createRetention(collections, write),
    purges: createPurges(collections.guards, write),
    audit: createAuditLog(database),
    file: undefined,
  };
}
