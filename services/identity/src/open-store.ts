import type { ServiceEnvironment } from "@sandgate/kit/service";
import type { OpenedStore } from "./store.ts";

/** Opens the service's database. Only the adapter that is chosen is loaded. */
export async function openStore({
  database,
  logger,
}: Pick<ServiceEnvironment, "database" | "logger">): Promise<OpenedStore> {
  if (database.kind === "mongodb") {
    const { openMongoStore } = await import("./store.mongo.ts");
    return openMongoStore({ url: database.url, name: database.name, logger });
  }
  const { openSqliteStore } = await import("./store.sqlite.ts");
  return openSqliteStore({ file: database.file, logger });
}
