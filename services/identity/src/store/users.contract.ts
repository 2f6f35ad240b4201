import { newId } from "@sandgate/kit/base/ids";
import { hourMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { hashSecret } from "../domain/tokens.ts";
import {
  apiToken,
  at,
  createUser,
  event,
  firstOperator,
  mail,
  registration,
  rotate,
  session,
  subjectsOf,
  takeMails,
} from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `Users` does. `open` returns an empty store. */
export function describeUsers(open: () => Promise<IdentityStore>): void {
  describe("users", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("the first operator is created once, however many try", async () => {
      expect(await store.users.hasOperator()).toBe(false);
      const created = await Promise.all(
        ["admin@localhost", "admin@localhost", "root@localhost"].map((name) =>
          store.users.createFirstOperator(firstOperator(name, [event("created")])),
        ),
      );
      expect(created.filter(Boolean)).toHaveLength(1);
      expect(await store.users.hasOperator()).toBe(true);
      expect(await subjectsOf(store)).toEqual(["created"]);
      const users = await store.users.find([], ["admin@localhost", "root@localhost"]);
      expect(users).toMatchObject([{ operator: true, verified: true }]);
    });

    test("users are found by id and by name, each once", async () => {
      const ann = await createUser(store, "ann@example.com");
      const bob = await createUser(store, "bob@example.com");
      const found = await store.users.find([ann, newId()], ["ann@example.com", "bob@example.com", "eve@example.com"]);
      expect(found.map(({ id }) => id).toSorted()).toEqual([ann, bob].toSorted());
    });

    test("users are listed newest first, in pages, or by name", async () => {
      const ids: string[] = [];
      for (const [i, name] of ["ann", "bob", "eve"].entries()) {
        const user = registration(`${name}@example.com`, { createdAt: at(i) });
        await store.registrations.register(user);
        ids.unshift(user.id);
      }
      const all = await store.users.list(undefined, 10, undefined);
      expect(all.map(({ id }) => id)).toEqual(ids);
      const first = await store.users.list(undefined, 2, undefined);
      expect([...first, ...(await store.users.list(undefined, 2, first[1]))]).toEqual(all);
      expect(await store.users.list("bob@example.com", 10, undefined)).toEqual([all[1]]);
      expect(await store.users.list("nobody@example.com", 10, undefined)).toEqual([]);
    });

    test("a disabled user's sessions end and tokens are unknown, until the user is enabled", async () => {
      const [ann, bob] = [await createUser(store, "ann@example.com"), await createUser(store, "bob@example.com")];
      const [anns, bobs] = [session(ann, "ann's"), session(bob, "bob's")];
      for (const each of [anns, bobs]) await store.sessions.create(each);
      await store.apiTokens.create(apiToken(ann, "token"), 0, undefined, []);
      const changed = await store.users.setDisabled(ann, true, at(0), []);
      expect(changed).toMatchObject({ user: { id: ann, disabled: true }, endedSessionIds: [anns.id] });
      expect(await store.users.setDisabled(ann, true, at(1), [])).toMatchObject({ endedSessionIds: [] });
      for (const passwordHash of ["hash", undefined]) {
        expect(await store.sessions.create(session(ann, "another", { passwordHash }))).toBe(false);
      }
      expect(await rotate(store, "ann's", "next", at(0))).toEqual({ outcome: "bad" });
      expect(await rotate(store, "bob's", "next", at(0))).toMatchObject({ outcome: "refreshed" });
      expect(await store.apiTokens.find(hashSecret("token"))).toBeUndefined();
      expect((await store.users.findAccount({ id: ann }))?.user.disabled).toBe(true);
      expect(await store.users.setDisabled(ann, false, at(2), [])).toMatchObject({ user: { disabled: false } });
      expect(await store.apiTokens.find(hashSecret("token"))).toBeDefined();
      expect(await store.sessions.create(session(ann, "another"))).toBe(true);
      expect(await store.users.setDisabled(newId(), true, at(0), [])).toBeUndefined();
    });

    test("no session outlives a user who is disabled while signing in", async () => {
      const ann = await createUser(store);
      const started: string[] = [];
      const starting = Array.from({ length: 10 }, async (_, i) => {
        const next = session(ann, `token ${i}`);
        if (await store.sessions.create(next)) started.push(next.id);
      });
      const [changed] = await Promise.all([store.users.setDisabled(ann, true, at(0), []), ...starting]);
      const ended = typeof changed === "object" ? changed.endedSessionIds : undefined;
      expect(ended?.toSorted()).toEqual(started.toSorted());
    });

    test("a deleted user is gone with sessions, tokens, links and mails, and the name is free", async () => {
      const [ann, bob] = [await createUser(store, "ann@example.com"), await createUser(store, "bob@example.com")];
      await takeMails(store, at(0));
      const [anns, bobs] = [session(ann, "ann's"), session(bob, "bob's")];
      for (const each of [anns, bobs]) await store.sessions.create(each);
      await store.apiTokens.create(apiToken(ann, "ann's token"), 0, undefined, []);
      await store.apiTokens.create(apiToken(bob, "bob's token"), 0, undefined, []);
      const reset = { tokenHash: hashSecret("link"), expiresAt: at(hourMs), mail: mail("reset") };
      await store.passwords.addReset(ann, reset, at(0));
      expect(await store.users.delete(ann, [event("deleted")], at(0))).toEqual([anns.id]);
      expect(await store.users.delete(ann, [event("deleted again")], at(0))).toBeUndefined();
      expect((await subjectsOf(store)).filter((subject) => subject.startsWith("deleted"))).toEqual(["deleted"]);
      expect(await store.users.findAccount({ id: ann })).toBeUndefined();
      expect(await store.apiTokens.find(hashSecret("ann's token"))).toBeUndefined();
      expect(await store.apiTokens.find(hashSecret("bob's token"))).toBeDefined();
      expect(await store.passwords.findReset(hashSecret("link"), at(0))).toBeUndefined();
      // Bob's, which nobody has said to be sent.
      expect(await takeMails(store, at(hourMs))).toEqual(["verify"]);
      expect(await store.sessions.listEndedSince(new Date(0))).toEqual([anns.id]);
      expect(await rotate(store, "bob's", "next", at(0))).toMatchObject({ outcome: "refreshed" });
      expect(await store.registrations.register(registration("ann@example.com"))).toBe("created");
    });

    test("a verified user becomes an operator, after whom another can go", async () => {
      const operator = firstOperator("admin@localhost");
      await store.users.createFirstOperator(operator);
      const unverified = registration("bob@example.com");
      await store.registrations.register(unverified);
      const make = (id: string) => store.users.makeOperator(id, [event("made operator")]);
      const told = async () => (await subjectsOf(store)).filter((subject) => subject === "made operator").length;
      const disabled = await createUser(store, "eve@example.com");
      await store.users.setDisabled(disabled, true, at(0), []);
      for (const id of [unverified.id, disabled, newId()]) expect(await make(id)).toBeUndefined();
      expect(await told()).toBe(0);
      const ann = await createUser(store);
      for (let time = 0; time < 2; time++) {
        expect(await make(ann)).toMatchObject({ id: ann, operator: true });
      }
      expect(await told()).toBe(2);
      for (const id of [unverified.id, disabled])
        expect(await store.users.find([id], [])).toMatchObject([{ operator: false }]);
      expect(await store.users.delete(operator.user.id, [], at(0))).toEqual([]);
      expect(await store.users.delete(ann, [], at(0))).toBe("last_operator");
    });

    test("the last operator stays, and stays enabled", async () => {
      const { user } = firstOperator("admin@localhost");
      await store.users.createFirstOperator({ user, events: [] });
      const stays = async () => {
        expect(await store.users.delete(user.id, [event("deleted")], at(0))).toBe("last_operator");
        expect(await store.users.setDisabled(user.id, true, at(0), [event("disabled")])).toBe("last_operator");
        expect(await store.users.find([user.id], [])).toMatchObject([{ operator: true, disabled: false }]);
      };
      await stays();
      const ann = await createUser(store);
      await store.users.makeOperator(ann, []);
      await store.users.setDisabled(ann, true, at(0), []);
      await stays();
      expect((await subjectsOf(store)).filter((subject) => subject !== "created")).toEqual([]);
      await store.users.setDisabled(ann, false, at(0), []);
      expect(await store.users.delete(user.id, [], at(0))).toEqual([]);
    });

    test("of operators who disable or delete each other at once, one stays enabled", async () => {
      const { user } = firstOperator("admin@localhost");
      await store.users.createFirstOperator({ user, events: [] });
      const ann = await createUser(store);
      await store.users.makeOperator(ann, []);
      const outcomes = await Promise.all([
        store.users.setDisabled(user.id, true, at(0), []),
        store.users.setDisabled(ann, true, at(0), []),
        store.users.delete(user.id, [], at(0)),
        store.users.delete(ann, [], at(0)),
      ]);
      expect(outcomes).toContain("last_operator");
      expect((await store.users.find([user.id, ann], [])).filter(({ disabled }) => !disabled)).toHaveLength(1);
    });
  });
}
