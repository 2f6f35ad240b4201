import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { Role } from "@sandgate/proto/common/v1/access";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { change, createWorkspace, memberAt, subjectsOf, unlimited, workspaceAt } from "../store/store.fixture.ts";
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

test("two owners who delete their accounts at once leave a workspace to the member with the highest role who joined first, and an operator deletes it with its last owner", async ({
  folder,
}) => {
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics: createMetrics() });
  const store = await openSqliteStore({ file: join(folder, "workspace.sqlite"), logger });
  const { id } = await createWorkspace(store);
  const joined: [userId: string, role: Role][] = [
    ["carl", Role.MEMBER],
    ["dora", Role.ADMIN],
    ["eve", Role.ADMIN],
    ["bob", Role.OWNER],
    ...Array.from({ length: 100 }, (_, at): [string, Role] => [`member ${at}`, Role.MEMBER]),
  ];
  for (const [at, [userId, role]] of joined.entries()) {
    await store.members.add(change(id, 1 + at), memberAt(at, userId, role), unlimited, undefined);
  }
  const signals: string[] = [];
  bus.watch("workspace.membership", (body) => signals.push(body));
  const deletedBy = (by: string, userId: string) => {
    const user = { id: by, credential: "session", credentialId: "s1" } as const;
    return endMemberships({ store, bus, logger, cause: { requestId: "r1", user } }, userId);
  };

  await deletedBy("ann", "ann");
  await deletedBy("bob", "bob");
  expect(await store.members.find(id, "dora", "bob")).toMatchObject({
    workspace: { role: Role.UNSPECIFIED },
    member: { role: Role.OWNER },
    owners: 1,
  });
  expect(await subjectsOf(store)).toEqual(
    ["removed", "updated", "removed"].map((what) => `sandgate.workspace.member.${what}.v1`),
  );
  expect(signals).toEqual([`${id} ann`, `${id} dora`, `${id} bob`]);

  await deletedBy("operator", "dora");
  expect(await store.workspaces.find(id, "carl")).toBeUndefined();
  await store.close();
  await bus.close();
});
