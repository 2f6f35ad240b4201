import type { Transaction, TransactionOf } from "@sandgate/kit/storage/sqlite";
import { decideCreateRegistry, decideUpdateRegistry, type RegistryRecord } from "../domain/registries.ts";
import { readWorkspace } from "./images.sqlite.transactions.ts";
import type { Registries } from "./registries.ts";
import { registryTable } from "./tables.sqlite.ts";

function isInUse({ db }: Transaction, registryId: string): boolean {
  return db.get("SELECT 1 FROM images WHERE registry_id = ? LIMIT 1", registryId) !== undefined;
}

function isNameTaken({ db }: Transaction, { id, workspaceId, name }: RegistryRecord): boolean {
  const sql = "SELECT 1 FROM registries WHERE workspace_id = ? AND name = ? AND id <> ?";
  return db.get(sql, workspaceId, name, id) !== undefined;
}

export const registryTransactions = {
  createRegistry(tx, registry, quotas, events, record) {
    const workspace = readWorkspace(tx, registry.workspaceId, "registries", quotas.maxRegistries);
    const outcome = decideCreateRegistry(workspace, isNameTaken(tx, registry), quotas);
    if (outcome !== "done") return outcome;
    tx.keepIdempotencyRecord(record);
    tx.db.run(registryTable.insert, { ...registry });
    tx.publish(events);
    return "done";
  },

  updateRegistry(tx, registry, events) {
    const { id, version } = registry;
    const before = tx.db.get<{ host: string }>("SELECT host FROM registries WHERE id = ? AND version = ?", id, version);
    if (!before) return "stale";
    const state = { ...before, inUse: isInUse(tx, id), nameTaken: isNameTaken(tx, registry) };
    const outcome = decideUpdateRegistry(state, registry);
    if (outcome !== "done") return outcome;
    tx.db.run(registryTable.update, { ...registry });
    tx.publish(events);
    return "done";
  },

  deleteRegistry(tx, registryId, version, events) {
    if (isInUse(tx, registryId)) return "in_use";
    if (tx.db.run("DELETE FROM registries WHERE id = ? AND version = ?", registryId, version) === 0) return "stale";
    tx.publish(events);
    return "done";
  },
} satisfies {
  createRegistry: TransactionOf<Registries["create"]>;
  updateRegistry: TransactionOf<Registries["update"]>;
  deleteRegistry: TransactionOf<Registries["delete"]>;
};
