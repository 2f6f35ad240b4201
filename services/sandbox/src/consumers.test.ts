import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { stageEvent } from "@sandgate/kit/events/outbox";
import { UserDisabledSchema } from "@sandgate/proto/identity/v1/identity_events";
import { MemberRemovedSchema, WorkspaceTakenOverSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import { consumeEvents } from "./consumers.ts";
import { makePreview } from "./domain/previews.ts";
import type { QuotaOwner } from "./domain/quota.ts";
import { becomeReady } from "./domain/sandbox.ts";
import { createSandbox, sandboxOf, unlimited } from "./store/store.fixture.ts";
import { openSqliteStore } from "./store/store.sqlite.ts";
import type { SandboxStore } from "./store/store.ts";

const logger = createLogger({ service: "sandbox", level: "silent" });
const quotas = { ...unlimited, user: { maxSandboxes: 2, maxMemoryMb: 0 } };

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

test("workspaces count towards the quota of whoever took them over last", async ({ folder }) => {
  const moved = newId();
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  const store = await openSqliteStore({ file: join(folder, "sandbox.sqlite"), logger });
  const create = (workspaceId: string, quotaOwner?: QuotaOwner) =>
    store.sandboxes.create(sandboxOf({ workspaceId }), { quotaOwner, quotas, events: [] });
  await create(newId(), { userId: "ann", since: 1 });
  await create(moved, { userId: "ann", since: 1 });
  await expect(create(newId(), { userId: "ann", since: 1 })).rejects.toMatchObject({ reason: "PROVISIONING_FAILED" });

  const following = await consumeEvents({ bus, store });
  await bus.publish([takenOver(moved, "bob", 9), takenOver(moved, "ann", 3)]);
  await until(() => create(newId(), { userId: "ann", since: 1 }));
  await create(newId(), { userId: "bob", since: 1 });
  await expect(create(moved)).rejects.toMatchObject({ reason: "PROVISIONING_FAILED" });
  await following.stop();
  await store.close();
  await bus.close();
});

/** A store in which a call that a facade had let in makes a preview, too late for the first deletion. */
function withLatePreview(store: SandboxStore, make: () => Promise<unknown>) {
  let isMade = false;
  const deleteOfUser: typeof store.previews.deleteOfUser = async (...which) => {
    const deleted = await store.previews.deleteOfUser(...which);
    if (!isMade) await make();
    isMade = true;
    return deleted;
  };
  return { store: { ...store, previews: { ...store.previews, deleteOfUser } }, isMade: () => isMade };
}

test("previews end with their creator's membership, with what facades still let through, but for later ones", async ({
  folder,
}) => {
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  const store = await openSqliteStore({ file: join(folder, "sandbox.sqlite"), logger });
  const [workspaceId, userId] = [newId(), newId()];
  const sandbox = becomeReady(await createSandbox(store, sandboxOf({ workspaceId })), new Date());
  await store.sandboxes.update(sandbox, []);
  const create = async (createdBy: string, at: Date) => {
    const asked = { port: 80, public: false, hostHeader: "preview", createdBy, ttlSeconds: 86_400 } as const;
    const { preview } = makePreview(sandbox, asked, at);
    await store.previews.create(preview, { events: [] });
    return preview.id;
  };
  const now = Date.now();
  await create(userId, new Date(now - 1_000));
  // By a machine whose clock is ahead.
  await create(userId, new Date(now + 1_000));
  const kept = [await create("another", new Date(now - 1_000)), await create(userId, new Date(now + 60_000))];

  const late = withLatePreview(store, () => create(userId, new Date(now)));
  const following = await consumeEvents({ bus, store: late.store });
  const removed = stageEvent({
    subject: "sandgate.workspace.member.removed.v1",
    entityId: `${workspaceId}/${userId}`,
    entityVersion: 2,
    workspaceId,
    schema: MemberRemovedSchema,
    payload: { workspaceId, userId },
  });
  await bus.publish([removed]);
  await until(() => expect(late.isMade()).toBe(true));
  await until(async () => {
    expect((await store.previews.list(sandbox.id)).map(({ id }) => id)).toEqual(kept);
  });
  await following.stop();
  await store.close();
  await bus.close();
});

test("previews end with their creator's account in all workspaces, with what facades still let through, but for later ones", async ({
  folder,
}) => {
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  const store = await openSqliteStore({ file: join(folder, "sandbox.sqlite"), logger });
  const [workspaceId, userId] = [newId(), newId()];
  const sandboxes = [workspaceId, newId()].map(async (id) => {
    const ready = becomeReady(await createSandbox(store, sandboxOf({ workspaceId: id })), new Date());
    await store.sandboxes.update(ready, []);
    return ready;
  });
  const [sandbox, elsewhere] = await Promise.all(sandboxes);
  if (!sandbox || !elsewhere) throw new Error("there are two");
  const create = async (createdBy: string, at: Date, on = sandbox) => {
    const asked = { port: 80, public: false, hostHeader: "preview", createdBy, ttlSeconds: 86_400 } as const;
    const { preview } = makePreview(on, asked, at);
    await store.previews.create(preview, { events: [] });
    return preview.id;
  };
  const now = Date.now();
  await create(userId, new Date(now - 1_000));
  await create(userId, new Date(now - 1_000), elsewhere);
  const kept = [await create("another", new Date(now - 1_000)), await create(userId, new Date(now + 60_000))];

  const late = withLatePreview(store, () => create(userId, new Date(now)));
  const following = await consumeEvents({ bus, store: late.store });
  const disabled = stageEvent({
    subject: "sandgate.identity.user.disabled.v1",
    entityId: userId,
    entityVersion: now,
    schema: UserDisabledSchema,
    payload: { userId },
  });
  await bus.publish([disabled]);
  const listed = async (on = sandbox) => (await store.previews.list(on.id)).map(({ id }) => id);
  await until(() => expect(late.isMade()).toBe(true));
  await until(async () => expect(await listed()).toEqual(kept));
  expect(await listed(elsewhere)).toEqual([]);
  await following.stop();
  await store.close();
  await bus.close();
});
