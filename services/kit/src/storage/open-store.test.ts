import { expect, test } from "vitest";
import { createLogger } from "../base/logging.ts";
import { openStore } from "./open-store.ts";

const logger = createLogger({ service: "test", level: "silent" });

test("only the adapter of the database that was given is loaded, and opens it", async () => {
  const loaded: string[] = [];
  const adapters = {
    async sqlite() {
      loaded.push("sqlite");
      return { openSqliteStore: async ({ file }: { file: string }) => `SQLite at ${file}` };
    },
    async mongodb() {
      loaded.push("mongodb");
      return { openMongoStore: async (o: { url: string; name: string }) => `MongoDB at ${o.url}, ${o.name}` };
    },
  };
  const sqlite = { kind: "sqlite", file: "a.sqlite" } as const;
  expect(await openStore({ database: sqlite, logger }, adapters)).toBe("SQLite at a.sqlite");
  expect(loaded.splice(0)).toEqual(["sqlite"]);
  const mongodb = { kind: "mongodb", url: "mongodb://host", name: "a" } as const;
  expect(await openStore({ database: mongodb, logger }, adapters)).toBe("MongoDB at mongodb://host, a");
  expect(loaded).toEqual(["mongodb"]);
});
