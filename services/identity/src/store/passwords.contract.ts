import { newId } from "@sandgate/kit/base/ids";
import { hourMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { NewSession } from "../domain/sessions.ts";
import { hashSecret } from "../domain/tokens.ts";
import {
  apiToken,
  at,
  createUser,
  mail,
  pendingSecondFactor,
  registration,
  rotate,
  session,
  startSession,
  takeMails,
} from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `Passwords` does. `open` returns an empty store. */
export function describePasswords(open: () => Promise<IdentityStore>): void {
  describe("passwords", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const reset = (link: string) => ({ tokenHash: hashSecret(link), expiresAt: at(hourMs), mail: mail("reset") });
    const change = { passwordHash: "new", revokesApiTokens: false, noticeMail: mail("changed"), events: [] };
    const another = () => ({ ...change, noticeMail: mail("changed") });
    const passwordOf = async (id: string) => (await store.users.findAccount({ id }))?.passwordHash;

    test("a link sets a password once, until it expires, and ends all links and sessions of that user alone", async () => {
      const ann = await createUser(store, "ann@example.com");
      const bob = await createUser(store, "bob@example.com");
      await takeMails(store, at(0));
      const sessions = [session(ann, "ann's one"), session(ann, "ann's two")];
      for (const each of [...sessions, session(bob, "bob's")]) expect(await store.sessions.create(each)).toBe(true);
      for (const link of ["one", "two"]) expect(await store.passwords.addReset(ann, reset(link), at(0))).toBe(true);
      await store.passwords.addReset(bob, reset("bob's"), at(0));
      expect(await store.passwords.findReset(hashSecret("one"), at(0))).toEqual({
        userId: ann,
        username: "ann@example.com",
      });
      expect(await store.passwords.findReset(hashSecret("one"), at(hourMs))).toBeUndefined();
      expect(await store.passwords.reset(hashSecret("one"), change, at(hourMs))).toBeUndefined();
      expect(await store.passwords.reset(hashSecret("none"), change, at(0))).toBeUndefined();
      const ended = await store.passwords.reset(hashSecret("one"), change, at(0));
      expect(ended?.toSorted()).toEqual(sessions.map(({ id }) => id).toSorted());
      expect((await store.sessions.listEndedSince(new Date(0))).toSorted()).toEqual(ended?.toSorted());
      expect(await passwordOf(ann)).toBe("new");
      expect(await passwordOf(bob)).toBe("hash");
      for (const link of ["one", "two"]) {
        expect(await store.passwords.reset(hashSecret(link), another(), at(0))).toBeUndefined();
      }
      expect(await rotate(store, "ann's one", "next", at(0))).toEqual({ outcome: "bad" });
      expect(await rotate(store, "bob's", "next", at(0))).toMatchObject({ outcome: "refreshed" });
      expect((await takeMails(store, at(0))).toSorted()).toEqual(["changed", "reset", "reset", "reset"]);
      expect(await store.passwords.reset(hashSecret("bob's"), another(), at(0))).toHaveLength(1);
    });

    test("of two uses of a link at once, one sets the password", async () => {
      const ann = await createUser(store);
      await store.passwords.addReset(ann, reset("one"), at(0));
      const outcomes = await Promise.all(
        ["ann's", "eve's"].map((passwordHash) =>
          store.passwords.reset(hashSecret("one"), { ...another(), passwordHash }, at(0)),
        ),
      );
      expect(outcomes.filter((outcome) => outcome !== undefined)).toHaveLength(1);
    });

    test("only a verified user gets a link", async () => {
      const unverified = registration("eve@example.com");
      await store.registrations.register(unverified);
      expect(await store.passwords.addReset(unverified.id, reset("eve's"), at(0))).toBe(false);
      expect(await store.passwords.addReset(newId(), reset("nobody's"), at(0))).toBe(false);
      expect(await store.passwords.addReset(await createUser(store), reset("ann's"), at(0))).toBe(true);
    });

    test("a change needs the current password, keeps its session, and ends links and other sessions", async () => {
      const ann = await createUser(store);
      await takeMails(store, at(0));
      const [mine, other] = [session(ann, "mine"), session(ann, "other")];
      for (const each of [mine, other]) await store.sessions.create(each);
      await store.passwords.addReset(ann, reset("one"), at(0));
      const user = { id: ann, currentHash: "hash", sessionId: mine.id };
      expect(await store.passwords.change({ ...user, currentHash: "wrong" }, another(), at(0))).toBeUndefined();
      expect(await store.passwords.change(user, change, at(0))).toEqual([other.id]);
      expect(await store.passwords.change(user, another(), at(0))).toBeUndefined();
      expect(await store.passwords.reset(hashSecret("one"), another(), at(0))).toBeUndefined();
      expect(await rotate(store, "mine", "next", at(0))).toMatchObject({ outcome: "refreshed" });
      expect(await rotate(store, "other", "next", at(0))).toEqual({ outcome: "bad" });
      expect((await takeMails(store, at(0))).toSorted()).toEqual(["changed", "reset"]);
    });

    test("all API tokens of that user alone are revoked with it where that is wanted, and an unconfirmed factor is dropped", async () => {
      const [ann, bob] = [await createUser(store), await createUser(store, "bob@example.com")];
      for (const [id, token] of [
        [ann, "one"],
        [ann, "two"],
        [bob, "bob's"],
      ] as const) {
        await store.apiTokens.create(apiToken(id, token), 0, undefined, []);
      }
      const tokensOf = async (id: string) => (await store.apiTokens.list(id, 10, undefined)).length;
      await store.secondFactors.add(pendingSecondFactor(ann));
      const user = { id: ann, currentHash: "hash", sessionId: newId() };
      await store.passwords.change(user, change, at(0));
      expect([await tokensOf(ann), await tokensOf(bob)]).toEqual([2, 1]);
      expect(await store.secondFactors.findPending(ann, at(0))).toBeUndefined();
      await store.passwords.addReset(ann, reset("one"), at(0));
      await store.passwords.reset(hashSecret("one"), { ...another(), revokesApiTokens: true }, at(0));
      expect([await tokensOf(ann), await tokensOf(bob)]).toEqual([0, 1]);
      expect(await store.apiTokens.find(hashSecret("one"))).toBeUndefined();
    });

    test("no token is made with a session that a new password ended, however it is timed", async () => {
      const ann = await createUser(store);
      const { id: sessionId } = await startSession(store, ann, "stolen");
      await store.passwords.addReset(ann, reset("one"), at(0));
      const making = Array.from({ length: 10 }, (_, i) =>
        store.apiTokens.create(apiToken(ann, `token ${i}`, { sessionId }), 0, undefined, []),
      );
      const changed = { ...change, revokesApiTokens: true };
      await Promise.all([store.passwords.reset(hashSecret("one"), changed, at(0)), ...making]);
      const late = store.apiTokens.create(apiToken(ann, "late", { sessionId }), 0, undefined, []);
      expect(await late).toBe("session_ended");
      expect(await store.apiTokens.list(ann, 20, undefined)).toEqual([]);
    });

    test("a session isn't started with a password that was replaced meanwhile, nor outlives the change", async () => {
      const ann = await createUser(store);
      const started: NewSession[] = [];
      const starting = Array.from({ length: 10 }, async (_, i) => {
        const next = session(ann, `token ${i}`);
        if (await store.sessions.create(next)) started.push(next);
      });
      const user = { id: ann, currentHash: "hash", sessionId: newId() };
      const [ended] = await Promise.all([store.passwords.change(user, change, at(0)), ...starting]);
      expect(ended?.toSorted()).toEqual(started.map(({ id }) => id).toSorted());
      expect(await store.sessions.create(session(ann, "late"))).toBe(false);
      expect(await store.sessions.create(session(ann, "new", { passwordHash: "new" }))).toBe(true);
    });
  });
}
