import { newId } from "@sandgate/kit/base/ids";
import { Role } from "@sandgate/proto/common/v1/access";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { MemberRecord, WorkspaceRecord, WorkspaceStore } from "./store.ts";

const at = (ms: number) => new Date(Date.UTC(2026, 0, 1) + ms);
/** No limits. */
const uncapped = { maxOwned: 0, maxMembers: 0 };
const event = (name: string) => ({ id: newId(), subject: name, bytes: new Uint8Array() });

function workspaceAt(ms: number, name = "Lab"): WorkspaceRecord {
  return { id: newId(), name, createdAt: at(ms), updatedAt: at(ms), version: 1 };
}

function memberAt(ms: number, userId: string, role: Role = Role.MEMBER): MemberRecord {
  return { userId, role, joinedAt: at(ms) };
}

/** What every store of workspaces does, whatever the database. `open` returns an empty one. */
export function describeWorkspaceStore(name: string, open: () => Promise<WorkspaceStore>): void {
  describe(`workspace store on ${name}`, () => {
    let store: WorkspaceStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const subjects = async () => (await store.outbox.unsent(100)).map(({ subject }) => subject);

    async function createWorkspace(ms = 0, ownerId = "ann"): Promise<WorkspaceRecord> {
      const workspace = workspaceAt(ms);
      await store.createWorkspace(workspace, ownerId, uncapped, [], undefined);
      return workspace;
    }

    test("a new workspace has its creator as its owner, and its event is in the outbox", async () => {
      const workspace = workspaceAt(0);
      expect(await store.createWorkspace(workspace, "ann", uncapped, [event("created")], undefined)).toBe("done");
      expect(await store.findWorkspace(workspace.id, "ann")).toEqual({ ...workspace, role: Role.OWNER });
      expect(await store.findWorkspace(workspace.id, "bob")).toEqual({ ...workspace, role: Role.UNSPECIFIED });
      expect(await subjects()).toEqual(["created"]);
    });

    test("a personal workspace is created once, however many ask, and not again when it is deleted", async () => {
      expect(await store.hadPersonalWorkspace("ann")).toBe(false);
      await Promise.all(
        [0, 1, 2].map((ms) => store.createPersonalWorkspace(workspaceAt(ms), "ann", [event("created")])),
      );
      const [personal, ...others] = await store.listWorkspaces("ann", undefined, 10);
      expect(others).toEqual([]);
      expect(await subjects()).toEqual(["created"]);
      await store.deleteWorkspace(personal?.id ?? "", 1, [], at(5), at(6), []);
      await store.createPersonalWorkspace(workspaceAt(7), "ann", []);
      expect(await store.listWorkspaces("ann", undefined, 10)).toEqual([]);
      expect(await store.hadPersonalWorkspace("ann")).toBe(true);
    });

    test("lists continue after a cursor, newest first, ties by id", async () => {
      const older = await createWorkspace(1);
      const [low, high] = [await createWorkspace(2), await createWorkspace(2)].sort((a, b) => (a.id < b.id ? -1 : 1));
      await createWorkspace(3, "bob");
      const ids = async (after?: { createdAt: Date; id: string }) =>
        (await store.listWorkspaces("ann", after, 2)).map(({ id }) => id);
      expect(await ids()).toEqual([high?.id, low?.id]);
      expect(await ids({ createdAt: at(2), id: high?.id ?? "" })).toEqual([low?.id, older.id]);

      await store.addMember(older.id, 1, memberAt(9, "bob"), uncapped, [], undefined);
      await store.addMember(older.id, 2, memberAt(9, "carl"), uncapped, [], undefined);
      const members = await store.listMembers(older.id, undefined, 2);
      expect(members.map(({ userId }) => userId)).toEqual(["carl", "bob"]);
      const rest = await store.listMembers(older.id, { createdAt: at(9), id: "bob" }, 2);
      expect(rest).toEqual([memberAt(1, "ann", Role.OWNER)]);
    });

    test("a change commits on the version it was decided on, and only once", async () => {
      const { id } = await createWorkspace();
      expect(await store.renameWorkspace(id, 1, "Office", at(4), [])).toBe("done");
      expect(await store.findWorkspace(id, "ann")).toMatchObject({ name: "Office", updatedAt: at(4), version: 2 });
      const stale = [
        await store.renameWorkspace(id, 1, "Shed", at(5), [event("updated")]),
        await store.addMember(id, 1, memberAt(5, "bob"), uncapped, [event("added")], undefined),
        await store.changeRole(id, 1, "ann", Role.MEMBER, [event("updated")], undefined),
        await store.removeMember(id, 1, "ann", [event("removed")], undefined),
        await store.deleteWorkspace(id, 1, ["sandbox"], at(5), at(6), [event("deleted")]),
        await store.renameWorkspace(newId(), 1, "Nowhere", at(5), []),
      ];
      expect(new Set(stale)).toEqual(new Set(["stale"]));
      expect(await store.findWorkspace(id, "ann")).toMatchObject({ name: "Office", role: Role.OWNER, version: 2 });
      expect(await subjects()).toEqual([]);
      expect(await store.oldestOpenDeletion()).toBeUndefined();
    });

    test("a new name and a new role have their events in the outbox", async () => {
      const { id } = await createWorkspace();
      await store.renameWorkspace(id, 1, "Office", at(4), [event("renamed")]);
      await store.changeRole(id, 2, "ann", Role.OWNER, [event("role")], undefined);
      expect(await subjects()).toEqual(["renamed", "role"]);
    });

    test("of two owners who leave at the same time one commits", async () => {
      const { id } = await createWorkspace();
      await store.addMember(id, 1, memberAt(1, "bob", Role.OWNER), uncapped, [], undefined);
      const outcomes = await Promise.all(
        ["ann", "bob"].map((userId) => store.removeMember(id, 2, userId, [], undefined)),
      );
      expect(outcomes.sort()).toEqual(["done", "stale"]);
    });

    test("members are added, changed and removed", async () => {
      const { id } = await createWorkspace();
      await store.addMember(id, 1, memberAt(1, "bob"), uncapped, [event("added")], undefined);
      expect(await store.findMember(id, "bob", "ann")).toMatchObject({
        workspace: { id, role: Role.OWNER, version: 2 },
        member: memberAt(1, "bob"),
        owners: 1,
      });
      await store.changeRole(id, 2, "bob", Role.OWNER, [], undefined);
      expect(await store.findMember(id, "bob", "bob")).toMatchObject({ member: { role: Role.OWNER }, owners: 2 });
      await store.removeMember(id, 3, "bob", [event("removed")], undefined);
      expect(await store.findMember(id, "bob", "ann")).toMatchObject({ member: undefined, owners: 1 });
      expect(await store.findMember(newId(), "bob", "ann")).toBeUndefined();
      expect(await subjects()).toEqual(["added", "removed"]);
    });

    test("workspaces are found by many ids, repeated and unknown ones included", async () => {
      const { id } = await createWorkspace();
      const found = await store.findWorkspaces([id, newId(), id], "ann");
      expect(found).toMatchObject([{ id, role: Role.OWNER }]);
      expect(await store.findWorkspaces([], "ann")).toEqual([]);
    });

    test("nothing is created for a user whose account is deleted", async () => {
      const { id } = await createWorkspace();
      await store.markAccountDeleted("bob", at(1));
      await store.markAccountDeleted("bob", at(2));
      expect(await store.createWorkspace(workspaceAt(3), "bob", uncapped, [event("created")], undefined)).toBe(
        "account_deleted",
      );
      expect(await store.addMember(id, 1, memberAt(3, "bob"), uncapped, [event("added")], undefined)).toBe(
        "account_deleted",
      );
      await store.createPersonalWorkspace(workspaceAt(3), "bob", [event("created")]);
      expect(await store.listWorkspaces("bob", undefined, 10)).toEqual([]);
      expect(await subjects()).toEqual([]);
    });

    test("a deleted workspace is gone with its members, and its deletion completes with the last purge", async () => {
      const { id } = await createWorkspace();
      await store.addMember(id, 1, memberAt(1, "bob"), uncapped, [], undefined);
      const services = ["image-registry", "sandbox"];
      expect(await store.deleteWorkspace(id, 2, services, at(5), at(60_000), [event("deleted")])).toBe("done");
      expect(await store.findWorkspace(id, "ann")).toBeUndefined();
      expect(await store.listWorkspaces("bob", undefined, 10)).toEqual([]);
      expect(await store.listMembers(id, undefined, 10)).toEqual([]);
      expect(await store.oldestOpenDeletion()).toEqual(at(5));

      await store.recordPurge(id, "sandbox", at(10));
      await store.recordPurge(id, "sandbox", at(11));
      await store.recordPurge(id, "another", at(12));
      expect(await store.listDueDeletions(at(60_000), 10)).toEqual([
        { workspaceId: id, deletedAt: at(5), announcements: 1, version: 3 },
      ]);
      await store.recordPurge(id, "image-registry", at(20));
      expect(await store.listDueDeletions(at(60_000), 10)).toEqual([]);
      expect(await store.oldestOpenDeletion()).toBeUndefined();
    });

    test("an open deletion is announced again when it is due, by only one of those who try", async () => {
      const { id } = await createWorkspace();
      await store.deleteWorkspace(id, 1, ["sandbox"], at(0), at(60_000), []);
      expect(await store.listDueDeletions(at(59_999), 10)).toEqual([]);
      expect(await store.listDueDeletions(at(60_000), 10)).toMatchObject([{ workspaceId: id, announcements: 1 }]);
      const outcomes = await Promise.all([
        store.announceDeletion(id, 2, at(180_000), [event("again")]),
        store.announceDeletion(id, 2, at(180_000), [event("again")]),
      ]);
      expect(outcomes.sort()).toEqual(["done", "stale"]);
      expect(await subjects()).toEqual(["again"]);
      expect(await store.listDueDeletions(at(60_000), 10)).toEqual([]);
      await store.recordPurge(id, "sandbox", at(200_000));
      expect(await store.listDueDeletions(at(300_000), 10)).toEqual([]);
      expect(await store.announceDeletion(id, 3, at(400_000), [event("late")])).toBe("stale");
    });

    describe("caps", () => {
      const caps = { maxOwned: 2, maxMembers: 2 };
      const create = (ms: number, ownerId = "ann") =>
        store.createWorkspace(workspaceAt(ms), ownerId, caps, [], undefined);
      const takeOver = (userId: string) => ({ userId, caps, event: event("taken over") });
      const chargeOf = async (id: string) => (await store.findCharges([id, id]))[0];

      test("a user owns no more workspaces than they may, and a deletion frees a place at once", async () => {
        const first = await createWorkspace();
        expect(await create(1)).toBe("done");
        const refused = workspaceAt(2);
        const record = { id: "record", sealed: new Uint8Array([1]) };
        expect(await store.createWorkspace(refused, "ann", caps, [event("created")], record)).toBe("owns_too_many");
        expect(await store.findWorkspace(refused.id, "ann")).toBeUndefined();
        expect(await subjects()).toEqual([]);
        expect(await create(2, "bob")).toBe("done");
        await store.deleteWorkspace(first.id, 1, [], at(3), at(4), []);
        expect(await store.createWorkspace(refused, "ann", caps, [], record)).toBe("done");
        expect(await create(5)).toBe("owns_too_many");
      });

      test("of many workspaces that are created at once for the last place, one is", async () => {
        await createWorkspace();
        const outcomes = await Promise.all([1, 2, 3, 4, 5].map((ms) => create(ms)));
        expect(outcomes.filter((outcome) => outcome === "done")).toHaveLength(1);
        expect(outcomes.filter((outcome) => outcome === "owns_too_many")).toHaveLength(4);
        expect(await store.listWorkspaces("ann", undefined, 10)).toHaveLength(2);
      });

      test("the personal workspace counts, but is made even when the user owns all they may", async () => {
        await create(1);
        await create(2);
        await store.createPersonalWorkspace(workspaceAt(3), "ann", []);
        const [personal, other] = await store.listWorkspaces("ann", undefined, 10);
        expect(personal?.createdAt).toEqual(at(3));
        await store.deleteWorkspace(other?.id ?? "", 1, [], at(4), at(5), []);
        expect(await create(6)).toBe("owns_too_many");
      });

      test("what others make a user the owner of takes no place of theirs, until they take it over", async () => {
        const { id } = await createWorkspace(0, "bob");
        await create(1);
        const own = await createWorkspace(2);
        expect(await store.addMember(id, 1, memberAt(3, "ann", Role.OWNER), caps, [], undefined)).toBe("done");
        const other = await createWorkspace(0, "bob");
        await store.addMember(other.id, 1, memberAt(3, "ann"), caps, [], undefined);
        expect(await store.changeRole(other.id, 2, "ann", Role.OWNER, [], undefined)).toBe("done");
        expect(await chargeOf(id)).toEqual({ workspaceId: id, userId: "bob", since: 1, abandoned: false });

        expect(await store.changeRole(id, 2, "ann", Role.OWNER, [], takeOver("ann"))).toBe("owns_too_many");
        expect(await store.removeMember(id, 2, "bob", [event("removed")], takeOver("ann"))).toBe("owns_too_many");
        expect(await chargeOf(id)).toMatchObject({ userId: "bob" });
        expect(await subjects()).toEqual([]);
        await store.deleteWorkspace(own.id, 1, [], at(4), at(5), []);
        expect(await store.changeRole(id, 2, "ann", Role.OWNER, [], takeOver("ann"))).toBe("done");
        expect(await chargeOf(id)).toEqual({ workspaceId: id, userId: "ann", since: 3, abandoned: false });
        expect(await subjects()).toEqual(["taken over"]);
        expect(await create(6)).toBe("owns_too_many");
        expect(await create(6, "bob")).toBe("done");
      });

      test("a workspace that a user leaves keeps its place until another owner takes it over", async () => {
        const { id } = await createWorkspace();
        await create(1);
        await store.addMember(id, 1, memberAt(2, "bob", Role.OWNER), caps, [], undefined);
        await store.removeMember(id, 2, "ann", [], undefined);
        expect(await chargeOf(id)).toEqual({ workspaceId: id, userId: "ann", since: 1, abandoned: true });
        expect(await create(3)).toBe("owns_too_many");
        await store.changeRole(id, 3, "bob", Role.OWNER, [], takeOver("bob"));
        expect(await chargeOf(id)).toEqual({ workspaceId: id, userId: "bob", since: 4, abandoned: false });
        expect(await create(4)).toBe("done");
      });

      test("of creations and takings over at the same time, one gets the last place", async () => {
        await createWorkspace();
        const given = await Promise.all([1, 2, 3, 4].map((ms) => createWorkspace(ms, "bob")));
        for (const { id } of given)
          await store.addMember(id, 1, memberAt(5, "ann", Role.OWNER), uncapped, [], undefined);
        const outcomes = await Promise.all([
          ...given.map(({ id }) => store.changeRole(id, 2, "ann", Role.OWNER, [], takeOver("ann"))),
          create(6),
        ]);
        expect(outcomes.sort()).toEqual(["done", ...outcomes.slice(1).map(() => "owns_too_many")]);
      });

      test("a taking over commits on the version it was decided on, with the change it comes with", async () => {
        const { id } = await createWorkspace();
        await store.addMember(id, 1, memberAt(1, "bob", Role.OWNER), uncapped, [], undefined);
        expect(await store.removeMember(id, 1, "ann", [event("removed")], takeOver("bob"))).toBe("stale");
        expect(await chargeOf(id)).toMatchObject({ userId: "ann" });
        expect(await store.removeMember(id, 2, "ann", [event("removed")], takeOver("bob"))).toBe("done");
        expect(await store.findMember(id, "ann", "bob")).toMatchObject({
          member: undefined,
          charge: { userId: "bob", since: 3 },
        });
        expect((await subjects()).sort()).toEqual(["removed", "taken over"]);
        expect(await store.findCharges([newId()])).toEqual([]);
      });

      test("a workspace has no more members than it may, also when several are added at once", async () => {
        const { id } = await createWorkspace();
        const add = (userId: string, version: number) =>
          store.addMember(id, version, memberAt(1, userId), caps, [], undefined);
        const outcomes = await Promise.all(["bob", "carl", "dora"].map((userId) => add(userId, 1)));
        expect(outcomes.filter((outcome) => outcome === "done")).toHaveLength(1);
        const members = await store.listMembers(id, undefined, 10);
        expect(members).toHaveLength(2);
        expect(await add("eve", 2)).toBe("too_many_members");
        const joined = members.find(({ userId }) => userId !== "ann")?.userId ?? "";
        await store.removeMember(id, 2, joined, [], undefined);
        expect(await add("eve", 3)).toBe("done");
      });
    });
  });
}
