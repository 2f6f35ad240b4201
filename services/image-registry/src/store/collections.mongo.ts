import type { Db } from "@sandgate/kit/storage/mongo";
import type { GuardDocument } from "@sandgate/kit/workspaces/mongo-guards";
import type { ImageRecord } from "../domain/images.ts";
import type { RegistryRecord } from "../domain/registries.ts";

/** What is undefined is not stored. */
export interface ImageDocument extends Omit<ImageRecord, "id"> {
  _id: string;
}

export interface RegistryDocument extends Omit<RegistryRecord, "id"> {
  _id: string;
  /** Grows with every image that is checked against it: images and changes of their registry take turns on it. */
  checks?: number;
}

interface ImageGuardDocument extends GuardDocument {
  /** Grows with every create: creates and the workspace's deletion take turns on it. */
  creates?: number;
}

interface SeedDocument {
  _id: "default_image";
}

/** A verified layer belongs to no workspace: it says which registry serves its bytes. */
interface VerifiedLayerDocument {
  _id: string;
  diffId: string;
  verifiedAt: Date;
}

export type Collections = ReturnType<typeof collectionsOf>;

export const collectionsOf = (db: Db) => ({
  images: db.collection<ImageDocument>("images"),
  registries: db.collection<RegistryDocument>("registries"),
  guards: db.collection<ImageGuardDocument>("guards"),
  seeds: db.collection<SeedDocument>("seeds"),
  verifiedLayers: db.collection<VerifiedLayerDocument>("verifiedLayers"),
});

// Lists name their index: the server may try another that it has to sort for.
export const newest = "newest";
export const newestEnabled = "newest_enabled";
export const byName = "by_name";
