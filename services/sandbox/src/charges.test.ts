import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { stageEvent } from "@sandgate/kit/events/outbox";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { WorkspaceTakenOverSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import { createCharges } from "./charges.ts";
import { acceptSandbox } from "./domain/sandbox.ts";
import { openSqliteStore } from "./store/store.sqlite.ts";

const logger = createLogger({ service: "sandbox", level: "silent" });
const noQuota = { maxSandboxes: 0, maxMemoryMb: 0 };
const quotas = { workspace: noQuota, user: { maxSandboxes: 2, maxMemoryMb: 0 }, installation: noQuota };

function takenOver(workspaceId: string, userId: string, version: number) {
  return stageEvent({
    subject: "sandgate.workspace.workspace.taken_over.v1",
    entityId: workspaceId,
    entityVersion: version,
    workspaceId,
    schema: WorkspaceTakenOverSchema,
    payload: { workspaceId, userId },
  });
}

test("workspaces count for who took them over last, and those of an earlier version for whom they are charged to", async ({
  folder,
}) => {
  const [old, moved] = [newId(), newId()];
  const metrics = createMetrics();
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  const store = await openSqliteStore({ file: join(folder, "sandbox.sqlite"), logger });
  const network = await createInMemoryNetwork();
  network.serve("workspace", {
    logger,
    metrics,
    routes: (router) =>
      router.service(WorkspaceService, {
        batchGetWorkspaces: ({ workspaceIds }) => ({
          charges: workspaceIds.map((workspaceId) => ({ workspaceId, userId: "ann", since: 1n })),
        }),
      }),
  });
  const create = async (workspaceId: string, charge?: { userId: string; since: number }) => {
    const image = { imageId: "i", reference: "alpine:3", registryId: "", isDefault: false, memoryMb: 256 };
    const id = newId();
    const sandbox = acceptSandbox({ id, name: id, workspaceId, image, labels: {}, createdBy: "ann", now: new Date() });
    await store.create(sandbox, charge, quotas, [], undefined);
  };
  await create(old);
  await create(moved, { userId: "ann", since: 1 });

  const workspaces = createClient(WorkspaceService, network.transport("sandbox", "workspace"));
  const following = await createCharges({ workspaces, store, bus, logger }).start();
  await until(async () => expect(await store.listUncharged({ limit: 10 })).toEqual([]));
  await expect(create(newId(), { userId: "ann", since: 1 })).rejects.toMatchObject({ reason: "PROVISIONING_FAILED" });

  await bus.publish([takenOver(moved, "bob", 9), takenOver(moved, "ann", 3)]);
  await until(() => create(newId(), { userId: "ann", since: 1 }));
  await create(newId(), { userId: "bob", since: 1 });
  await expect(create(moved)).rejects.toMatchObject({ reason: "PROVISIONING_FAILED" });
  await following.stop();
  await store.close();
  await bus.close();
});
