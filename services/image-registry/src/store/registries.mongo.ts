import { afterPosition, isDuplicateKey, type MongoDatabase, type MongoTransaction } from "@sandgate/kit/storage/mongo";
import { decideCreateRegistry, decideUpdateRegistry, type RegistryRecord } from "../domain/registries.ts";
import { collectionsOf, type RegistryDocument } from "./collections.mongo.ts";
import { lockWorkspace } from "./images.mongo.ts";
import type { Registries } from "./registries.ts";

function toRegistry({ _id, checks: _, ...registry }: RegistryDocument): RegistryRecord {
  return { id: _id, ...registry, sealedPassword: new Uint8Array(registry.sealedPassword) };
}

export function createRegistries({ db, write }: MongoDatabase): Registries {
  const collections = collectionsOf(db);
  const { images, registries } = collections;

  async function isInUse({ session }: MongoTransaction, registryId: string): Promise<boolean> {
    return (await images.findOne({ registryId }, { session, projection: { _id: 1 } })) !== null;
  }

  async function isNameTaken({ session }: MongoTransaction, registry: RegistryRecord): Promise<boolean> {
    const { id, workspaceId, name } = registry;
    const other = { workspaceId, name, _id: { $ne: id } };
    return (await registries.findOne(other, { session, projection: { _id: 1 } })) !== null;
  }

  return {
    async find(registryId, workspaceId) {
      const found = await registries.findOne({ _id: registryId, workspaceId });
      return found ? toRegistry(found) : undefined;
    },

    async list(workspaceId, after, limit) {
      const last = after && { createdAt: after.createdAt, _id: after.id };
      const found = await registries
        .find({ workspaceId, ...afterPosition<RegistryDocument>(last) })
        .sort({ createdAt: -1, _id: -1 })
        .limit(limit)
        .toArray();
      return found.map(toRegistry);
    },

    async create(registry, quotas, events, record) {
      const { id, ...fields } = registry;
      try {
        return await write(async (tx) => {
          const { workspaceId } = registry;
          const workspace = await lockWorkspace(collections, tx, workspaceId, "registries", quotas.maxRegistries);
          const outcome = decideCreateRegistry(workspace, await isNameTaken(tx, registry), quotas);
          if (outcome !== "done") return outcome;
          await tx.keepIdempotencyRecord(record);
          await registries.insertOne({ _id: id, ...fields }, { session: tx.session });
          await tx.publish(events);
          return "done";
        });
      } catch (error) {
        // A name that was taken at the same time. It is thrown, so that the idempotency record is undone.
        if (isDuplicateKey(error)) return "name_taken";
        throw error;
      }
    },

    update: (registry, events) =>
      write(async (tx) => {
        const { session } = tx;
        const { id, version, ...fields } = registry;
        const before = await registries.findOne({ _id: id, version }, { session });
        if (!before) return "stale";
        const state = {
          host: before.host,
          inUse: await isInUse(tx, id),
          nameTaken: await isNameTaken(tx, registry),
        };
        const outcome = decideUpdateRegistry(state, registry);
        if (outcome !== "done") return outcome;
        await registries.updateOne({ _id: id, version }, { $set: fields, $inc: { version: 1 } }, { session });
        await tx.publish(events);
        return "done";
      }),

    delete: (registryId, version, events) =>
      write(async (tx) => {
        if (await isInUse(tx, registryId)) return "in_use";
        const deleted = await registries.deleteOne({ _id: registryId, version }, { session: tx.session });
        if (deleted.deletedCount === 0) return "stale";
        await tx.publish(events);
        return "done";
      }),
  };
}
