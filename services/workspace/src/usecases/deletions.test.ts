import { join } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { expect, onTestFinished, test } from "vitest";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { announceDueDeletions, deleteWorkspace } from "./deletions.ts";

const start = new Date("2026-01-01T00:00:00Z");

/** A store with one workspace. */
async function openStore() {
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const logger = createLogger({ service: "workspace", level: "silent" });
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  const store = await openSqliteStore({ file: join(folder, "workspace.sqlite"), logger });
  onTestFinished(async () => {
    await store.close();
    await bus.close();
    await removeFolder();
  });
  const workspace = { id: newId(), name: "Lab", createdAt: start, updatedAt: start, version: 1 };
  await store.workspaces.create(workspace, "ann", { maxOwned: 0, maxMembers: 0 }, [], undefined);
  return { store, bus, workspace };
}

test("a deletion is open until image-registry, sandbox and telemetry have purged", async () => {
  const { store, bus, workspace } = await openStore();
  await deleteWorkspace({ store, bus }, workspace, { requestId: newId() });
  for (const service of ["sandbox", "identity", "telemetry", "image-registry"]) {
    expect(await store.deletions.findOldestOpen(), `before ${service}`).toBeDefined();
    await store.deletions.recordPurge(workspace.id, service, new Date());
  }
  expect(await store.deletions.findOldestOpen()).toBeUndefined();
});

test("an open deletion is announced as a new event with a higher version, until the last purge", async () => {
  const { store, workspace } = await openStore();
  const after = (minutes: number) => new Date(start.getTime() + minutes * 60_000);
  await store.workspaces.delete(
    { workspaceId: workspace.id, version: 1, events: [] },
    { services: ["sandbox"], deletedAt: start, announceAgainAt: after(1) },
  );

  for (const minutes of [0.9, 1, 2.9, 3]) await announceDueDeletions(store, after(minutes));
  const events = (await store.outbox.unsent(10)).map(({ bytes }) => fromBinary(EventSchema, bytes));
  expect(events.map(({ subject, entityVersion }) => [subject, entityVersion])).toEqual([
    ["sandgate.workspace.workspace.deleted.v1", 3n],
    ["sandgate.workspace.workspace.deleted.v1", 4n],
  ]);
  expect(new Set(events.map(({ eventId }) => eventId)).size).toBe(2);

  await store.deletions.recordPurge(workspace.id, "sandbox", after(4));
  await announceDueDeletions(store, after(60));
  expect(await store.outbox.unsent(10)).toHaveLength(2);
});
