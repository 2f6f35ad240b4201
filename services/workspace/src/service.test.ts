import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { encodeCursor } from "@sandgate/kit/base/page";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { stageEvent } from "@sandgate/kit/events/outbox";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { asFacade, asService, onBehalfOf, type RoleName } from "@sandgate/kit/rpc/context";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { Role } from "@sandgate/proto/common/v1/access";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { UserDeletedSchema } from "@sandgate/proto/identity/v1/identity_events";
import { WorkspacePurgedSchema } from "@sandgate/proto/imageregistry/v1/image_registry_events";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, expect, test } from "vitest";
import { workspaceService } from "./service.ts";

const logger = createLogger({ service: "workspace", level: "silent" });
const users = ["ann", "bob", "carl", "eve"].map((id) => ({
  id,
  username: `${id}@example.com`,
  verified: id !== "carl",
}));
const cleanUps: (() => Promise<unknown>)[] = [];

async function start() {
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const network = await createInMemoryNetwork();
  const metrics = createMetrics();
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  const service = await workspaceService.open(
    {
      database: { kind: "sqlite", file: join(folder, "workspace.sqlite") },
      bus,
      transport: (callee) => network.transport("workspace", callee),
      keyring: await openKeyring({ file: join(folder, "keys.json"), create: true }),
      logger,
      metrics,
    },
    workspaceService.readSettings({ SANDGATE_WORKSPACE_MAX_MEMBERS: "2" }),
  );
  network.serve("workspace", { routes: service.routes, logger, metrics });
  network.serve("identity", {
    logger,
    metrics: createMetrics(),
    routes: (router) =>
      router.service(IdentityService, {
        batchGetUsers: ({ userIds, usernames }) => ({
          users: users.filter(({ id, username }) => userIds.includes(id) || usernames.includes(username)),
        }),
      }),
  });
  await service.start();
  cleanUps.push(async () => {
    await service.drain();
    await service.close();
    await bus.close();
    await removeFolder();
  });
  return { bus, network, metrics };
}

let running: Awaited<ReturnType<typeof start>>;
beforeAll(async () => {
  running = await start();
});
afterAll(() => Promise.all(cleanUps.map((cleanUp) => cleanUp())));

const client = () => createClient(WorkspaceService, running.network.transport("facade", "workspace"));

function as(id: string, workspace?: { id: string; role: RoleName; roleLimit?: RoleName }, idempotencyKey?: string) {
  const { roleLimit } = workspace ?? {};
  return asFacade({
    requestId: newId(),
    user: {
      id,
      credential: roleLimit ? "api_token" : "session",
      ...(roleLimit && { roleLimit }),
      credentialId: "s1",
      operator: false,
      ...(workspace && { workspaceId: workspace.id, role: workspace.role }),
    },
    idempotencyKey,
  });
}

async function createWorkspace(owner = "ann"): Promise<{ id: string; role: RoleName }> {
  const { workspace } = await client().createWorkspace({ name: "Lab" }, as(owner));
  return { id: workspace?.id ?? "", role: "owner" };
}

const refused = (reason: string) => expect.objectContaining({ reason });

test("an API token with a role does what that role may, though its user is an owner", async () => {
  const { id } = await createWorkspace();
  const asAdmin = as("ann", { id, role: "admin", roleLimit: "admin" });
  const api = client();
  const insufficient = { reason: "INSUFFICIENT_ROLE" };
  await expect(api.addMember({ username: "bob@example.com", role: Role.OWNER }, asAdmin)).rejects.toMatchObject(
    insufficient,
  );
  const { member } = await api.addMember({ username: "bob@example.com", role: Role.MEMBER }, asAdmin);
  const bob = member?.userId ?? "";
  await expect(api.updateMember({ userId: bob, role: Role.OWNER }, asAdmin)).rejects.toMatchObject(insufficient);
  await expect(api.removeMember({ userId: "ann" }, asAdmin)).rejects.toMatchObject(insufficient);
  await expect(api.deleteWorkspace({}, asAdmin)).rejects.toMatchObject(insufficient);
  // Another service that asks on behalf of the token learns the same.
  const asMember = as("ann", { id, role: "member", roleLimit: "member" });
  expect((await api.batchGetWorkspaces({ workspaceIds: [id] }, asMember)).workspaces).toMatchObject([
    { id, role: Role.MEMBER },
  ]);
  expect((await api.getWorkspace({}, asMember)).workspace).toMatchObject({ role: Role.MEMBER });
  const listed = (await api.listWorkspaces({}, asMember)).workspaces;
  expect(listed.map(({ role }) => role)).not.toContain(Role.OWNER);
  await expect(api.createWorkspace({ name: "Own" }, asAdmin)).rejects.toMatchObject(insufficient);
});

test("the first list creates a user's personal workspace, once", async () => {
  const user = newId();
  const lists = await Promise.all([1, 2].map(() => client().listWorkspaces({}, as(user))));
  const [first, second] = lists.map(({ workspaces }) => workspaces);
  expect(first).toMatchObject([{ name: "Personal", role: Role.OWNER }]);
  expect(second).toEqual(first);
  await client().deleteWorkspace({}, as(user, { id: first?.[0]?.id ?? "", role: "owner" }));
  expect((await client().listWorkspaces({}, as(user))).workspaces).toEqual([]);
});

test("the same Idempotency-Key gives the first workspace again", async () => {
  const user = newId();
  const key = newId();
  const [first, again] = await Promise.all(
    [1, 2].map(() => client().createWorkspace({ name: "Lab" }, as(user, undefined, key))),
  );
  expect(again).toEqual(first);
  await expect(client().createWorkspace({ name: "Other" }, as(user, undefined, key))).rejects.toThrow(
    refused("CONFLICT"),
  );
});

test("a user owns 20 workspaces unless set, the personal one among them", async () => {
  const user = newId();
  const last = newId();
  await client().listWorkspaces({}, as(user));
  for (let owned = 1; owned < 19; owned++) await client().createWorkspace({ name: "Lab" }, as(user));
  const { workspace } = await client().createWorkspace({ name: "Last" }, as(user, undefined, last));
  await expect(client().createWorkspace({ name: "Lab" }, as(user))).rejects.toMatchObject({
    reason: "CONFLICT",
    hint: expect.stringContaining("may own 20 workspaces"),
  });
  expect((await client().createWorkspace({ name: "Last" }, as(user, undefined, last))).workspace).toEqual(workspace);
  expect((await client().listWorkspaces({}, as(user))).workspaces).toHaveLength(20);
});

test("a workspace has no more members than it may", async () => {
  const workspace = await createWorkspace();
  const asAnn = as("ann", workspace);
  await client().addMember({ username: "bob@example.com", role: Role.MEMBER }, asAnn);
  await expect(client().addMember({ username: "eve@example.com", role: Role.MEMBER }, asAnn)).rejects.toMatchObject({
    reason: "CONFLICT",
    hint: expect.stringContaining("may have 2 members"),
  });
  await client().removeMember({ userId: "bob" }, asAnn);
  await client().addMember({ username: "eve@example.com", role: Role.MEMBER }, asAnn);
});

test("whoever adds a user to newer workspaces doesn't push the user's own from the top of the list", async () => {
  const bob = as("bob");
  const own = (await client().createWorkspace({ name: "Own" }, bob)).workspace?.id;
  const others: string[] = [];
  for (let i = 0; i < 3; i++) {
    const workspace = await createWorkspace();
    others.unshift(workspace.id);
    await client().addMember({ username: "bob@example.com", role: Role.MEMBER }, as("ann", workspace));
  }
  const seen: (string | undefined)[] = [];
  let cursor = "";
  do {
    const { workspaces, nextCursor } = await client().listWorkspaces({ page: { limit: 1, cursor } }, bob);
    // Other tests add bob to theirs.
    seen.push(...workspaces.map(({ id }) => id).filter((id) => id === own || others.includes(id)));
    cursor = nextCursor;
  } while (cursor);
  expect(seen).toEqual([own, ...others]);
  // A cursor of the version before this one.
  const old = encodeCursor({ createdAt: new Date(2100, 0), id: newId() });
  expect((await client().listWorkspaces({ page: { limit: 1, cursor: old } }, bob)).workspaces).toMatchObject([
    { role: Role.OWNER },
  ]);
});

test("lists come in pages", async () => {
  const user = newId();
  for (const name of ["1", "2", "3"]) await client().createWorkspace({ name }, as(user));
  const first = await client().listWorkspaces({ page: { limit: 3 } }, as(user));
  const rest = await client().listWorkspaces({ page: { limit: 3, cursor: first.nextCursor } }, as(user));
  expect(rest.nextCursor).toBe("");
  expect([...first.workspaces, ...rest.workspaces].map(({ name }) => name)).toEqual(["Personal", "3", "2", "1"]);
  await expect(client().listWorkspaces({ page: { cursor: "x" } }, as(user))).rejects.toThrow(
    refused("VALIDATION_ERROR"),
  );
});

test("a name has 1 to 100 characters and no control characters", async () => {
  for (const name of ["", "a".repeat(101), "a\u0007b"]) {
    await expect(client().createWorkspace({ name }, as("ann"))).rejects.toThrow(refused("VALIDATION_ERROR"));
  }
  await client().createWorkspace({ name: "é".repeat(100) }, as("ann"));
});

test("members are added by the names of verified users, once", async () => {
  const workspace = await createWorkspace();
  const asAnn = as("ann", workspace);
  const { member } = await client().addMember({ username: "bob@example.com", role: Role.ADMIN }, asAnn);
  expect(member).toMatchObject({ userId: "bob", username: "bob@example.com", role: Role.ADMIN });
  await expect(client().addMember({ username: "bob@example.com", role: Role.MEMBER }, asAnn)).rejects.toThrow(
    refused("CONFLICT"),
  );
  for (const username of ["carl@example.com", "nobody@example.com"]) {
    await expect(client().addMember({ username, role: Role.MEMBER }, asAnn)).rejects.toThrow(
      refused("MEMBER_NOT_FOUND"),
    );
  }
  const { members } = await client().listMembers({}, asAnn);
  expect(members.map(({ username, role }) => [username, role])).toEqual([
    ["bob@example.com", Role.ADMIN],
    ["ann@example.com", Role.OWNER],
  ]);
  expect(await client().getMembership({ workspaceId: workspace.id, userId: "bob" }, as("bob"))).toMatchObject({
    workspaceExists: true,
    role: Role.ADMIN,
  });
  const { userIds } = await client().listMemberIds({ workspaceId: workspace.id }, as("bob"));
  expect(userIds).toEqual(["bob", "ann"]);
  expect((await client().listMemberIds({ workspaceId: newId() }, as("bob"))).userIds).toEqual([]);
});

test("the role is asked again when a change commits, not only where the call began", async () => {
  const workspace = await createWorkspace();
  await client().addMember({ username: "bob@example.com", role: Role.ADMIN }, as("ann", workspace));
  const asBobTheAdmin = as("bob", { id: workspace.id, role: "admin" });
  await client().updateMember({ userId: "bob", role: Role.MEMBER }, as("ann", workspace));
  await expect(client().updateWorkspace({ name: "Mine" }, asBobTheAdmin)).rejects.toThrow(refused("INSUFFICIENT_ROLE"));
  await client().removeMember({ userId: "bob" }, asBobTheAdmin);
  await expect(client().getWorkspace({}, asBobTheAdmin)).rejects.toThrow(refused("WORKSPACE_FORBIDDEN"));
});

test("of two owners who leave at once, one has to stay", async () => {
  const workspace = await createWorkspace();
  await client().addMember({ username: "bob@example.com", role: Role.OWNER }, as("ann", workspace));
  const results = await Promise.allSettled(
    ["ann", "bob"].map((userId) => client().removeMember({ userId }, as(userId, workspace))),
  );
  expect(results.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  expect(results.find((result) => result.status === "rejected")?.reason).toEqual(refused("CONFLICT"));
});

test("a change of membership is signaled to those who cache it", async () => {
  const signals: string[] = [];
  const unwatch = running.bus.watch("workspace.membership", (body) => signals.push(body));
  const workspace = await createWorkspace();
  await client().addMember({ username: "bob@example.com", role: Role.MEMBER }, as("ann", workspace));
  await client().updateMember({ userId: "bob", role: Role.ADMIN }, as("ann", workspace));
  await client().removeMember({ userId: "bob" }, as("ann", workspace));
  await client().deleteWorkspace({}, as("ann", workspace));
  unwatch();
  const { id } = workspace;
  expect(signals).toEqual([`${id} bob`, `${id} bob`, `${id} bob`, `${id} *`]);
});

test("a deletion is complete when every service has purged", async () => {
  const { bus, network, metrics } = await start();
  const client = createClient(WorkspaceService, network.transport("facade", "workspace"));
  const id = (await client.createWorkspace({ name: "Lab" }, as("ann"))).workspace?.id ?? "";
  const asAnn = as("ann", { id, role: "owner" });
  const ageOfOldest = async () => {
    const text = await metrics.getSingleMetricAsString("sandgate_workspace_oldest_open_deletion_age_seconds");
    return Number(text.split(" ").at(-1));
  };
  expect(await ageOfOldest()).toBe(0);
  await expect(client.deleteWorkspace({}, as("ann", { id, role: "admin" }))).rejects.toThrow(
    refused("INSUFFICIENT_ROLE"),
  );
  await client.deleteWorkspace({}, asAnn);
  await expect(client.getWorkspace({}, asAnn)).rejects.toThrow(refused("WORKSPACE_NOT_FOUND"));
  expect(await client.getMembership({ workspaceId: id, userId: "ann" }, as("ann"))).toMatchObject({
    workspaceExists: false,
    role: Role.UNSPECIFIED,
  });
  expect(await ageOfOldest()).toBeGreaterThan(0);

  await bus.publish(
    ["image-registry", "sandbox", "telemetry"].map((service) =>
      stageEvent({
        subject: `sandgate.${service}.workspace.workspace_purged.v1`,
        entityId: id,
        entityVersion: 1,
        workspaceId: id,
        schema: WorkspacePurgedSchema,
        payload: { workspaceId: id },
      }),
    ),
  );
  await until(async () => expect(await ageOfOldest()).toBe(0));
});

test("a deleted user leaves their workspaces, and those without another owner go", async () => {
  users.push({ id: "dora", username: "dora@example.com", verified: true });
  const shared = await createWorkspace("ann");
  await client().addMember({ username: "dora@example.com", role: Role.OWNER }, as("ann", shared));
  const own = await createWorkspace("dora");
  await running.bus.publish([
    stageEvent({
      subject: "sandgate.identity.user.deleted.v1",
      entityId: "dora",
      entityVersion: 2,
      call: { requestId: "r1", user: { id: "dora", credential: "session", credentialId: "s1" } },
      schema: UserDeletedSchema,
      payload: { userId: "dora" },
    }),
  ]);
  await until(async () => {
    const { workspaces } = await client().batchGetWorkspaces({ workspaceIds: [own.id, shared.id] }, as("dora"));
    expect(workspaces).toMatchObject([{ id: shared.id, role: Role.UNSPECIFIED }]);
  });
  await expect(
    client().addMember({ username: "dora@example.com", role: Role.MEMBER }, as("ann", shared)),
  ).rejects.toThrow(refused("MEMBER_NOT_FOUND"));
  await expect(client().createWorkspace({ name: "Again" }, as("dora"))).rejects.toThrow(refused("INVALID_TOKEN"));
});

test("the account of the last owner of a workspace with other members may not be deleted", async () => {
  const ann = newId();
  await client().listWorkspaces({}, as(ann));
  const workspace = await createWorkspace(ann);
  await client().checkAccountDeletion({}, as(ann));
  await client().addMember({ username: "bob@example.com", role: Role.ADMIN }, as(ann, workspace));
  await expect(client().checkAccountDeletion({}, as(ann))).rejects.toMatchObject({
    reason: "CONFLICT",
    message: expect.stringContaining("Lab"),
  });
  await client().checkAccountDeletion({}, as("bob"));
  await client().updateMember({ userId: "bob", role: Role.OWNER }, as(ann, workspace));
  await client().checkAccountDeletion({}, as(ann));
});

test("a workspace counts for who created it, until another owner takes it over", async () => {
  const ann = newId();
  const workspace = await createWorkspace(ann);
  const { member } = await client().addMember({ username: "bob@example.com", role: Role.OWNER }, as(ann, workspace));
  expect(member).toMatchObject({ userId: "bob", role: Role.OWNER });
  const quotaOwnerOf = async () => {
    const { quotaOwners } = await client().batchGetWorkspaces({ workspaceIds: [workspace.id] }, as("bob"));
    return quotaOwners[0];
  };
  expect(await quotaOwnerOf()).toMatchObject({ workspaceId: workspace.id, userId: ann, since: 1n, abandoned: false });
  const takenOver: { workspaceId: string; entityVersion: bigint }[] = [];
  const consumption = await running.bus.consume({
    consumer: "taken-over",
    subjects: ["sandgate.workspace.workspace.taken_over.v1"],
    async handle({ workspaceId, entityVersion }) {
      takenOver.push({ workspaceId, entityVersion });
    },
  });

  await client().updateMember({ userId: "bob", role: Role.OWNER }, as("bob", workspace));
  expect(await quotaOwnerOf()).toMatchObject({ userId: "bob", since: 3n });
  await client().removeMember({ userId: "bob" }, as("bob", workspace));
  expect(await quotaOwnerOf()).toMatchObject({ userId: "bob", since: 3n, abandoned: true });
  const sandbox = createClient(WorkspaceService, running.network.transport("sandbox", "workspace"));
  const onBehalfOfAnn = onBehalfOf({
    requestId: newId(),
    user: {
      id: ann,
      credential: "session",
      credentialId: "s1",
      operator: false,
      workspaceId: workspace.id,
      role: "owner",
    },
    signal: new AbortController().signal,
    timeoutMs: () => undefined,
  });
  await sandbox.takeOverWorkspace({}, onBehalfOfAnn);
  await sandbox.takeOverWorkspace({}, onBehalfOfAnn);
  expect(await quotaOwnerOf()).toMatchObject({ userId: ann, since: 5n, abandoned: false });
  await until(() =>
    expect(takenOver).toEqual([3n, 5n].map((entityVersion) => ({ workspaceId: workspace.id, entityVersion }))),
  );
  await consumption.stop();
});

test("being made an owner takes no place of a user's, and taking a workspace over does", async () => {
  users.push({ id: "fred", username: "fred@example.com", verified: true });
  await client().listWorkspaces({}, as("fred"));
  for (let owned = 1; owned < 20; owned += 1) await createWorkspace("fred");
  const given = await createWorkspace("eve");
  await client().addMember({ username: "fred@example.com", role: Role.OWNER }, as("eve", given));
  const asFred = as("fred", given);
  const ownsTooMany = { reason: "CONFLICT", hint: expect.stringContaining("may own 20 workspaces") };
  for (const takeOver of [
    () => client().updateMember({ userId: "fred", role: Role.OWNER }, asFred),
    () => client().updateMember({ userId: "eve", role: Role.ADMIN }, asFred),
    () => client().removeMember({ userId: "eve" }, asFred),
  ]) {
    await expect(takeOver()).rejects.toMatchObject(ownsTooMany);
  }
  const { workspaces } = await client().listWorkspaces({}, as("fred"));
  const own = workspaces.find(({ id }) => id !== given.id)?.id ?? "";
  await client().deleteWorkspace({}, as("fred", { id: own, role: "owner" }));
  await client().removeMember({ userId: "eve" }, asFred);
  await expect(createWorkspace("fred")).rejects.toMatchObject(ownsTooMany);
});

test("other services ask which workspaces exist, and nothing else", async () => {
  const workspace = await createWorkspace();
  const sandbox = createClient(WorkspaceService, running.network.transport("sandbox", "workspace"));
  const { workspaces } = await sandbox.batchGetWorkspaces({ workspaceIds: [workspace.id, newId()] }, asService());
  expect(workspaces).toMatchObject([{ id: workspace.id, name: "Lab", role: Role.UNSPECIFIED }]);
  await expect(sandbox.getMembership({ workspaceId: workspace.id, userId: "ann" }, asService())).rejects.toThrow(
    refused("CALLER_NOT_ALLOWED"),
  );
});
