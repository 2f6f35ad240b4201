import { deleteBatch, type MongoDatabase } from "@sandgate/kit/storage/mongo";
import { collectionsOf } from "./collections.mongo.ts";
import type { VerifiedLayers } from "./verified-layers.ts";

const idOf = (host: string, digest: string) => `${host} ${digest}`;

export function createVerifiedLayers({ db }: MongoDatabase): VerifiedLayers {
  const { verifiedLayers } = collectionsOf(db);
  return {
    async find(host, digests) {
      const byId = new Map(digests.map((digest) => [idOf(host, digest), digest]));
      const found = await verifiedLayers.find({ _id: { $in: [...byId.keys()] } }).toArray();
      return found.map(({ _id, diffId }) => ({ digest: byId.get(_id) ?? "", diffId }));
    },

    async put(host, layers, verifiedAt) {
      if (layers.length === 0) return;
      await verifiedLayers.bulkWrite(
        layers.map(({ digest, diffId }) => ({
          updateOne: { filter: { _id: idOf(host, digest) }, update: { $set: { diffId, verifiedAt } }, upsert: true },
        })),
        { ordered: false },
      );
    },

    // The server keeps this number. After a crash of the server it may be a little off.
    count: () => verifiedLayers.estimatedDocumentCount(),

    deleteBefore: (before, limit) => deleteBatch(verifiedLayers, { verifiedAt: { $lt: before } }, limit),
  };
}
