import { join } from "node:path";
import { fromBinary, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { type EventCause, type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import { asFacade, type RoleName, type UserCaller } from "@sandgate/kit/rpc/context";
import { Credential } from "@sandgate/proto/common/v1/access";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import { SandboxProvisionedSchema } from "@sandgate/proto/sandbox/v1/sandbox_events";
import type { AuditFilterSchema } from "@sandgate/proto/telemetry/v1/audit";
import { WorkspaceDeletedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect } from "vitest";
import { openTestService, type TestService } from "../service.fixture.ts";

const logger = createLogger({ service: "telemetry", level: process.env.SANDGATE_LOG_LEVEL ?? "silent" });
const [ours, theirs] = [newId(), newId()];

let bus: EventBus;
let service: TestService;
let open: () => Promise<void>;

test.beforeEach(async ({ folder }) => {
  open = async () => {
    bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
    service = await openTestService({
      runtime: "docker:///nowhere/docker.sock",
      installationId: newId(),
      database: { kind: "sqlite", file: join(folder, "telemetry.sqlite") },
      bus: deliveringTwice(bus),
      keysFile: join(folder, "keys.json"),
      logger,
    });
  };
  await open();
});
afterEach(async () => {
  await service.close();
  await bus.close();
});

/** The same bus, which hands each event to its consumer three times, two of them at once. */
function deliveringTwice(inner: EventBus): EventBus {
  return {
    ...inner,
    consume: ({ handle, ...o }) =>
      inner.consume({
        ...o,
        async handle(event) {
          await Promise.all([handle(event), handle(event)]);
          await handle(event);
        },
      }),
  };
}

function userIn(workspaceId: string | undefined, role: RoleName | undefined, operator = false): UserCaller {
  const user = { id: "ann", credential: "session" as const, credentialId: "s1", operator };
  return { ...user, ...(workspaceId && { workspaceId }), ...(role && { role }) };
}

const as = (user: UserCaller) => asFacade({ requestId: newId(), user });
const operator = as(userIn(undefined, undefined, true));

function provisioned(workspaceId: string, sandboxId = newId()): StagedEvent {
  return stageEvent({
    subject: "sandgate.sandbox.sandbox.provisioned.v1",
    entityId: sandboxId,
    entityVersion: 1,
    workspaceId,
    call: { requestId: "r1", clientAddress: "192.0.2.7", user: userIn(workspaceId, "member") },
    schema: SandboxProvisionedSchema,
    payload: { sandboxId, name: "box", imageId: "i1" },
  });
}

function workspaceDeleted(workspaceId: string, call?: EventCause): StagedEvent {
  return stageEvent({
    subject: "sandgate.workspace.workspace.deleted.v1",
    entityId: workspaceId,
    entityVersion: 2,
    workspaceId,
    call,
    schema: WorkspaceDeletedSchema,
    payload: { workspaceId },
  });
}

/** The whole log's entries, oldest first, by what they are about. */
async function actionsLogged(): Promise<string[]> {
  const { entries } = await service.audit.listAllAuditEntries({}, operator);
  return entries.map((entry) => `${entry.action} ${entry.targetId}`).toReversed();
}

test("an event that comes again has one entry, which says who, what, on what, when and from where", async () => {
  const sandboxId = newId();
  const event = provisioned(ours, sandboxId);
  const last = provisioned(ours, "last");
  await bus.publish([event]);
  await expect.poll(actionsLogged).toHaveLength(1);
  await bus.publish([last]);
  await expect.poll(actionsLogged).toEqual([`sandbox.provision ${sandboxId}`, "sandbox.provision last"]);
  const { entries } = await service.audit.listAuditEntries({}, as(userIn(ours, "admin")));
  expect(entries[1]).toMatchObject({
    id: event.id,
    workspaceId: ours,
    actorId: "ann",
    credential: Credential.SESSION,
    credentialId: "s1",
    address: "192.0.2.7",
    action: "sandbox.provision",
    targetType: "sandbox",
    targetId: sandboxId,
    outcome: "success",
    requestId: "r1",
    count: 1,
  });
  expect(entries[1]?.at).toEqual(fromBinary(EventSchema, event.bytes).occurredAt);
});

test("what was published while telemetry was away is written when it is back", async () => {
  await service.close();
  await bus.publish([provisioned(ours, "1"), provisioned(ours, "2")]);
  await bus.close();
  await open();
  await expect
    .poll(async () => (await actionsLogged()).toSorted())
    .toEqual(["sandbox.provision 1", "sandbox.provision 2"]);
});

test("a workspace's log is its admins', and has no other's entries", async () => {
  await bus.publish([provisioned(ours, "ours"), provisioned(theirs, "theirs")]);
  await expect.poll(actionsLogged).toHaveLength(2);
  for (const [workspaceId, role, targetId] of [
    [ours, "admin", "ours"],
    [theirs, "owner", "theirs"],
  ] as const) {
    const { entries } = await service.audit.listAuditEntries({}, as(userIn(workspaceId, role)));
    expect(entries.map((entry) => entry.targetId)).toEqual([targetId]);
  }
  for (const refused of [as(userIn(ours, "member")), asFacade({ requestId: newId() })]) {
    await expect(service.audit.listAuditEntries({}, refused)).rejects.toThrow();
  }
  await expect(service.audit.listAllAuditEntries({}, as(userIn(ours, "owner")))).rejects.toMatchObject({
    reason: "FORBIDDEN",
  });
});

test("a deletion that is announced again has one entry, which stays when the workspace is purged", async () => {
  const call = { requestId: "r2", user: userIn(ours, "owner") };
  await bus.publish([provisioned(ours, "1"), workspaceDeleted(ours, call), workspaceDeleted(ours)]);
  await expect.poll(actionsLogged).toHaveLength(2);
  await bus.publish([workspaceDeleted(ours), provisioned(theirs, "2")]);
  await expect.poll(actionsLogged).toEqual(["sandbox.provision 1", `workspace.delete ${ours}`, "sandbox.provision 2"]);
});

test("pages and filters", async () => {
  await bus.publish(Array.from({ length: 5 }, (_, i) => provisioned(ours, `${i}`)));
  await expect.poll(actionsLogged).toHaveLength(5);
  const all = await service.audit.listAllAuditEntries({}, operator);
  const ids: string[] = [];
  for (let cursor = ""; ; ) {
    const page = await service.audit.listAllAuditEntries({ page: { limit: 2, cursor } }, operator);
    ids.push(...page.entries.map(({ id }) => id));
    cursor = page.nextCursor;
    if (cursor === "") break;
  }
  expect(ids).toEqual(all.entries.map(({ id }) => id));
  const filtered = async (filter: MessageInitShape<typeof AuditFilterSchema>) =>
    (await service.audit.listAllAuditEntries({ filter }, operator)).entries.length;
  expect(await filtered({ actorId: "ann" })).toBe(5);
  expect(await filtered({ actorId: "bob" })).toBe(0);
  expect(await filtered({ action: "sandbox.stop" })).toBe(0);
  const [newest] = all.entries;
  expect(await filtered(newest?.at ? { since: newest.at, until: newest.at } : {})).toBe(0);
  await expect(service.audit.listAllAuditEntries({ page: { cursor: "nonsense" } }, operator)).rejects.toMatchObject({
    reason: "VALIDATION_ERROR",
  });
});

test("entries of the facade are written once", async () => {
  const entry = { id: newId(), at: timestampNow(), action: "user.sign_in", outcome: "invalid_credentials", count: 4 };
  const record = () => service.audit.recordAuditEntries({ entries: [entry] }, asFacade({ requestId: newId() }));
  await record();
  await record();
  const { entries } = await service.audit.listAllAuditEntries({}, operator);
  expect(entries).toMatchObject([entry]);
});
