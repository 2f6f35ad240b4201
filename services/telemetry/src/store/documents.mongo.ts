import type { Db } from "@sandgate/kit/storage/mongo";
import type { GuardDocument } from "@sandgate/kit/workspaces/mongo-guards";
import type { SandboxRecord } from "../domain/batches.ts";
import type { Chunk } from "../domain/chunks.ts";

export interface TelemetryGuardDocument extends GuardDocument {
  /** Grows with each new sandbox, so that its first batch conflicts with a deletion of the workspace. */
  sandboxes?: number;
  /** The `textBytes` of all its sandboxes. */
  logBytes?: number;
}

/** Every batch writes its sandbox's document, so that the cursors change in one compare-and-set with the rows. */
export interface SandboxDocument extends SandboxRecord {
  _id: string;
  /** Of all its chunks together. */
  textBytes: number;
  /** The number of its chunks. */
  chunks: number;
  /** Nothing will follow from any of its sources. */
  ended?: boolean;
  /** The first time of its oldest log chunk, in microseconds; missing until that is looked for after a sweep. */
  oldestUs?: number;
  updatedAt: Date;
}

/** Its times are in microseconds. */
export interface ChunkDocument extends Omit<Chunk, "rows"> {
  sandboxId: string;
  firstSequence: number;
  lastSequence: number;
}

export type Collections = ReturnType<typeof collectionsOf>;

export const collectionsOf = (db: Db) => ({
  guards: db.collection<TelemetryGuardDocument>("guards"),
  sandboxes: db.collection<SandboxDocument>("sandboxes"),
  chunks: db.collection<ChunkDocument>("chunks"),
});
