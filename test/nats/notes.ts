import { join } from "node:path";
import { createLogger, type Logger } from "@sandgate/kit/base/logging";
import { createMetrics, type Metrics } from "@sandgate/kit/base/metrics";
import { openNatsBus } from "@sandgate/kit/events/bus.nats";
import type { NatsDeliveryPolicy } from "@sandgate/kit/events/bus.nats-consumption";
import { openSqlite, type SqliteDatabase } from "@sandgate/kit/storage/sqlite";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { eventOf as contractEventOf, policyUnderTest } from "../contract/event-bus/session.ts";
import { migrations, type transactions } from "./notes.transactions.ts";

export const logger = createLogger({ service: "test", level: "silent" });
/** Redeliveries come soon, even after a process died, but not while a process is only suspended for a moment. */
export const policy = { ...policyUnderTest, ackWaitMs: 5_000 };

export const eventOf = (entity: string, subject = "sandgate.test.note.added.v1") =>
  contractEventOf({ entity, subject });

export const openBus = (o: {
  url: string;
  service?: string;
  logger?: Logger;
  metrics?: Metrics;
  policy?: Partial<NatsDeliveryPolicy>;
}) =>
  openNatsBus({
    url: o.url,
    service: o.service ?? "test",
    logger: o.logger ?? logger,
    metrics: o.metrics ?? createMetrics(),
    policy: { ...policy, ...o.policy },
  });

export interface Notes {
  database: SqliteDatabase<typeof transactions>;
  /** The notes of which the effect was made, once for each time. */
  effects(): string[];
  remove(): Promise<void>;
}

export async function openNotes(): Promise<Notes> {
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const database = await openSqlite<typeof transactions>({
    file: join(folder, "notes.sqlite"),
    migrations,
    transactions: new URL("./notes.transactions.ts", import.meta.url),
    logger,
  });
  return {
    database,
    effects: () => database.read.all<{ note: string }>("SELECT note FROM effects").map(({ note }) => note),
    async remove() {
      await database.close();
      await removeFolder();
    },
  };
}
