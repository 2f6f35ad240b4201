import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { createWorkspace, unlimited, workspaceAt } from "../store/store.fixture.ts";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { endMemberships } from "./deleted-accounts.ts";

const logger = createLogger({ service: "workspace", level: "silent" });

test("a user keeps their workspaces when a restored database of identity takes them for never verified", async ({
  folder,
}) => {
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  const store = await openSqliteStore({ file: join(folder, "workspace.sqlite"), logger });
  const { id } = await createWorkspace(store);
  // The platform itself deletes accounts that were never verified, so nobody is the event's actor.
  const abandoned = { store, bus, logger, cause: { requestId: "" } };
  await endMemberships(abandoned, "ann");
  await endMemberships(abandoned, "never-verified");
  expect(await store.workspaces.find(id, "ann")).toMatchObject({ id });
  const create = (userId: string) => store.workspaces.create(workspaceAt(1), userId, unlimited, [], undefined);
  expect([await create("ann"), await create("never-verified")]).toEqual(["done", "account_deleted"]);

  const user = { id: "ann", credential: "session", credentialId: "s1" } as const;
  await endMemberships({ ...abandoned, cause: { requestId: "r1", user } }, "ann");
  expect(await store.workspaces.find(id, "ann")).toBeUndefined();
  await store.close();
  await bus.close();
});
