import { addMs } from "@sandgate/kit/base/time";
import type { MongoDatabase } from "@sandgate/kit/storage/mongo";
import { keptMs } from "../domain/retention.ts";
import { collectionsOf } from "./collections.mongo.ts";
import { removeAt } from "./expiry.mongo.ts";
import type { KnownNetworks } from "./known-networks.ts";

export function createKnownNetworks({ db }: MongoDatabase): KnownNetworks {
  const { knownNetworks } = collectionsOf(db);

  return {
    async has(userId, network, now) {
      const since = addMs(now, -keptMs.knownNetworks).getTime();
      return (await knownNetworks.findOne({ _id: network, userId, seenAt: { $gt: since } })) !== null;
    },

    async add(userId, network, now) {
      const seen = { userId, seenAt: now.getTime(), removeAt: removeAt("knownNetworks", now) };
      await knownNetworks.updateOne({ _id: network }, { $set: seen }, { upsert: true });
    },
  };
}
