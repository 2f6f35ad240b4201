import { join } from "node:path";
import { createLogger, type Logger } from "@sandgate/kit/base/logging";
import type { MongoStoreOptions, SqliteStoreOptions } from "@sandgate/kit/storage/open-store";
import { probeMongo, type SharedMongo, useMongo } from "@sandgate/test-support/mongo";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { afterAll, beforeAll, describe } from "vitest";

/** The suite that every adapter of a service's store passes. `open` returns an empty store. */
type StoreContract<S> = (database: string, open: () => Promise<S>) => void;

interface Closable {
  close(): Promise<void>;
}

/** Runs the contract of a service's store on SQLite, each store in a folder of its own. */
export function describeOnSqlite<S extends Closable>(
  service: string,
  open: (o: SqliteStoreOptions) => Promise<S>,
  describeStore: StoreContract<S>,
): void {
  describeStore("SQLite", async () => {
    const { path: folder, remove: removeFolder } = await createTempFolder();
    const opened = await open({ file: join(folder, `${service}.sqlite`), logger: silent(service) });
    return closing(opened, removeFolder);
  });
}

/** Runs the contract of a service's store on MongoDB where there is one, each store in a database of its own. */
export async function describeOnMongo<S extends Closable>(
  service: string,
  open: (o: MongoStoreOptions) => Promise<S>,
  describeStore: StoreContract<S>,
): Promise<void> {
  describe.runIf(await requireServer("mongo", probeMongo))("MongoDB", () => {
    let mongo: SharedMongo;
    beforeAll(async () => {
      mongo = await useMongo();
    });
    afterAll(() => mongo.stop());

    describeStore("MongoDB", async () => {
      const { url, name, drop } = await mongo.createDatabase();
      return closing(await open({ url, name, logger: silent(service) }), drop);
    });
  });
}

function silent(service: string): Logger {
  return createLogger({ service, level: "silent" });
}

/** The same store, whose `close` also removes what it stored. */
function closing<S extends Closable>(opened: S, remove: () => Promise<void>): S {
  return {
    ...opened,
    async close() {
      await opened.close();
      await remove();
    },
  };
}
