import type { CredentialKind } from "@sandgate/kit/rpc/context";
import { createGroupCommit } from "@sandgate/kit/storage/group-commit";
import {
  afterPosition,
  createCollections,
  type Db,
  deleteBatch,
  type MongoDatabase,
  type MongoMigration,
  type MongoTransaction,
} from "@sandgate/kit/storage/mongo";
import type { AuditEntry, AuditTarget } from "../domain/audit.ts";
import type { AuditLog } from "./audit.ts";

interface EntryDocument {
  /** The entry's id. */
  _id: string;
  sequence: number;
  at: Date;
  workspaceId?: string | undefined;
  actorId?: string | undefined;
  credential?: { kind: CredentialKind; id: string } | undefined;
  address?: string | undefined;
  action: string;
  target?: AuditTarget | undefined;
  outcome: string;
  requestId?: string | undefined;
  count: number;
}

/** How far something has come: the numbering of the entries, or a copy of the log. */
interface CursorDocument {
  _id: string;
  sequence: number;
}

/**
 * Every transaction that adds entries writes this document, so that they are numbered in the order of their commits.
 */
const numbering = "entries";
/** How many entries are added in one transaction. */
const maxTogether = 1_000;

export const auditMigration: MongoMigration = {
  name: "telemetry 3: the audit log",
  expands: true,
  run: (db) =>
    createCollections(db, {
      audit_entries: [
        { name: "by_sequence", key: { sequence: 1 }, unique: true },
        { name: "all", key: { at: -1, _id: -1 } },
        { name: "by_actor", key: { actorId: 1, at: -1, _id: -1 } },
        { name: "by_action", key: { action: 1, at: -1, _id: -1 } },
        { name: "of_workspace", key: { workspaceId: 1, at: -1, _id: -1 } },
        { name: "of_workspace_by_actor", key: { workspaceId: 1, actorId: 1, at: -1, _id: -1 } },
        { name: "of_workspace_by_action", key: { workspaceId: 1, action: 1, at: -1, _id: -1 } },
      ],
      audit_cursors: [],
    }),
};

export const auditIndexMigration: MongoMigration = {
  name: "telemetry 5: the audit log by actor and action",
  expands: true,
  run: (db) =>
    createCollections(db, {
      audit_entries: [
        { name: "by_actor_by_action", key: { actorId: 1, action: 1, at: -1, _id: -1 } },
        { name: "of_workspace_by_actor_by_action", key: { workspaceId: 1, actorId: 1, action: 1, at: -1, _id: -1 } },
      ],
    }),
};

const collectionsOf = (db: Db) => ({
  entries: db.collection<EntryDocument>("audit_entries"),
  cursors: db.collection<CursorDocument>("audit_cursors"),
});

export function createAuditLog({ db, write }: Pick<MongoDatabase, "db" | "write">): AuditLog {
  const { entries, cursors } = collectionsOf(db);

  // Transactions of their own would take turns at the numbering, and bring fewer entries than the platform makes.
  const appendTogether = createGroupCommit<AuditEntry, void>({
    maxItems: maxTogether,
    async commit(added) {
      await write((tx) => insertUnknown(tx, added));
      return added.map(() => undefined);
    },
  });

  async function insertUnknown({ session }: MongoTransaction, added: readonly AuditEntry[]): Promise<void> {
    const ids = added.map(({ id }) => id);
    const known = await entries.find({ _id: { $in: ids } }, { session, projection: { _id: 1 } }).toArray();
    const knownIds = new Set(known.map(({ _id }) => _id));
    // Of two entries with one id, the first.
    const unknown = added.filter(({ id }) => !knownIds.has(id) && knownIds.add(id));
    if (unknown.length === 0) return;
    const last = await cursors.findOneAndUpdate(
      { _id: numbering },
      { $inc: { sequence: unknown.length } },
      { session, upsert: true, returnDocument: "after" },
    );
    const first = (last?.sequence ?? 0) - unknown.length + 1;
    await entries.insertMany(
      // What is undefined is not stored (`ignoreUndefined`).
      unknown.map(({ id, ...entry }, i) => ({ _id: id, sequence: first + i, ...entry })),
      { session },
    );
  }

  return {
    async append(added) {
      await Promise.all(added.map((entry) => appendTogether(entry)));
    },

    async list({ workspaceId, actorId, action, since, until, after, limit }) {
      const found = await entries
        .find({
          $and: [
            {
              ...(workspaceId !== undefined && { workspaceId }),
              ...(actorId !== undefined && { actorId }),
              ...(action !== undefined && { action }),
              ...((since || until) && { at: { ...(since && { $gte: since }), ...(until && { $lt: until }) } }),
            },
            afterPosition<EntryDocument>(after && { at: after.at, _id: after.id }),
          ],
        })
        .sort({ at: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(toEntry);
    },

    async listAfter(sequence, limit) {
      const found = await entries
        .find({ sequence: { $gt: sequence } })
        .sort({ sequence: 1 })
        .limit(limit)
        .toArray();
      return found.map((document) => ({ sequence: document.sequence, entry: toEntry(document) }));
    },

    sweep: (before, limit) => deleteBatch(entries, { at: { $lt: before } }, limit),

    async findCopyCursor(copy) {
      return (await cursors.findOne({ _id: cursorOf(copy) }))?.sequence ?? 0;
    },

    async setCopyCursor(copy, sequence) {
      await cursors.updateOne({ _id: cursorOf(copy) }, { $set: { sequence } }, { upsert: true });
    },
  };
}

function cursorOf(copy: string): string {
  return `copy ${copy}`;
}

function toEntry({ _id, sequence, ...document }: EntryDocument): AuditEntry {
  return {
    workspaceId: undefined,
    actorId: undefined,
    credential: undefined,
    address: undefined,
    target: undefined,
    requestId: undefined,
    ...document,
    id: _id,
  };
}
