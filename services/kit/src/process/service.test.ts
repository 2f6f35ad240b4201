import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { createRouterTransport } from "@connectrpc/connect";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { createLogger } from "../base/logging.ts";
import { createMetrics } from "../base/metrics.ts";
import { openLocalBus } from "../events/bus.local.ts";
import { serviceStoreOf } from "../storage/open-store.ts";
import { openKeyring } from "../storage/sealing.ts";
import { migrations } from "../storage/sqlite.fixture.ts";
import { openSqlite } from "../storage/sqlite.ts";
import { defineService } from "./service.ts";

test("one task that can't be stopped and a flush that fails leave no other task running and no store open", async ({
  folder,
}) => {
  const logger = createLogger({ service: "test", level: "silent" });
  const metrics = createMetrics();
  const bus = await openLocalBus({ file: join(folder, "bus.sqlite"), logger, metrics });
  const ended: string[] = [];
  const definition = defineService({
    name: "workspace",
    settings: {},
    stores: {
      sqlite: async () => ({
        async openSqliteStore({ file }) {
          const transactions = new URL("../storage/sqlite.fixture.ts", import.meta.url);
          const store = serviceStoreOf(await openSqlite({ file, migrations, transactions, logger }));
          return { ...store, close: () => store.close().then(() => void ended.push("store")) };
        },
      }),
      mongodb: () => Promise.reject(new Error("not this one")),
    },
    open: () => ({
      routes() {},
      start: async () => [
        { stop: () => Promise.reject(new Error("can't be stopped")) },
        { stop: () => delay(50).then(() => void ended.push("task")) },
      ],
      dependencies: async () => ({}),
      flush: () => Promise.reject(new Error("can't be stored")),
    }),
  });
  const database = { kind: "sqlite" as const, file: join(folder, "test.sqlite") };
  const keyring = await openKeyring({ file: join(folder, "keys.json"), create: true });
  const transport = () => createRouterTransport(() => {});
  const service = await definition.open({ database, bus, transport, keyring, logger, metrics }, {});
  await service.start();
  await expect(service.drain()).rejects.toThrow("can't be stopped");
  expect(ended).toEqual(["task"]);
  await expect(service.close()).rejects.toThrow("can't be stored");
  expect(ended).toEqual(["task", "store"]);
  await bus.close();
});
