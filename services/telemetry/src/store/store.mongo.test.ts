import { newId } from "@sandgate/kit/base/ids";
import { openMongo } from "@sandgate/kit/storage/mongo";
import type { MongoStoreOptions } from "@sandgate/kit/storage/open-store";
import { describeOnMongo } from "@sandgate/test/stores";
import { afterEach, beforeEach, expect, test } from "vitest";
import { describeAuditStore } from "./audit.contract.ts";
import { encodeLogs } from "./chunks.ts";
import { fromMillis } from "./rows.ts";
import { describeTelemetryStore } from "./store.contract.ts";
import { createMongoStore, migrations, openMongoStore } from "./store.mongo.ts";

await describeOnMongo("telemetry", openMongoStore, describeTelemetryStore);
await describeOnMongo("telemetry", openMongoStore, describeAuditStore);

async function openWithDatabase(options: MongoStoreOptions) {
  const database = await openMongo({ ...options, migrations });
  return { ...createMongoStore(database), db: database.db };
}

await describeOnMongo("telemetry", openWithDatabase, (_, open) => {
  let opened: Awaited<ReturnType<typeof open>>;
  beforeEach(async () => {
    opened = await open();
  });
  afterEach(() => opened.close());

  test("what a version that doesn't count has stored or removed is counted anew", async () => {
    const { db } = opened;
    const workspaces = [newId(), newId(), newId()];
    const chunk = await encodeLogs([{ timeNs: fromMillis(1_000), stream: "stdout", log: "x" }]);
    const append = (workspaceId: string) =>
      opened.appendBatch(
        {
          source: { sandboxId: newId(), workspaceId, containerId: "c", kind: "logs" },
          fromCursor: "",
          toCursor: "a",
          chunk,
          final: true,
        },
        { quotas: { sandboxBytes: 0, workspaceBytes: 0 }, now: new Date(1_000) },
      );
    for (const workspaceId of workspaces) await append(workspaceId);
    const guards = db.collection<{ _id: string; logBytes?: number }>("guards");
    const [uncounted = "", tooMany = "", gone = ""] = workspaces;
    await guards.updateOne({ _id: uncounted }, { $unset: { logBytes: "" } });
    await guards.updateOne({ _id: tooMany }, { $inc: { logBytes: 500 } });
    const left = await db.collection<{ workspaceId: string }>("sandboxes").findOneAndDelete({ workspaceId: gone });
    await db.collection("chunks").deleteMany({ sandboxId: left?._id, kind: "logs" });

    await opened.recountLogs();
    const counts = await Promise.all(workspaces.map((_id) => guards.findOne({ _id })));
    expect(counts.map((guard) => guard?.logBytes)).toEqual([chunk.textBytes, chunk.textBytes, 0]);
  });
});
