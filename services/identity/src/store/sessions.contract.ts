import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { refreshTokenSeconds, sessionSeconds } from "../domain/sessions.ts";
import { hashSecret } from "../domain/tokens.ts";
import { at, createUser, otherClient, rotate, session, startSession } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `Sessions` and `RefreshTokens` does. `open` returns an empty store. */
export function describeSessions(open: () => Promise<IdentityStore>): void {
  describe("sessions", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const idsOf = async (userId: string, now = at(0)) =>
      (await store.sessions.list(userId, 10, undefined, now)).map(({ id }) => id);

    test("are listed with when and where they were last used, newest first, in pages", async () => {
      const [ann, bob] = [await createUser(store, "ann@example.com"), await createUser(store, "bob@example.com")];
      const made = ["one", "two", "three"].map((token, i) => session(ann, token, { createdAt: at(i) }));
      for (const each of [...made, session(bob, "bob's")]) await store.sessions.create(each);
      await rotate(store, "one", "one again", at(5000));
      const all = await store.sessions.list(ann, 10, undefined, at(0));
      expect(all.map(({ id }) => id)).toEqual(made.map(({ id }) => id).toReversed());
      expect(all.at(-1)).toEqual({ id: made[0]?.id, createdAt: at(0), lastSeenAt: at(5000), client: otherClient });
      expect(all[0]).toMatchObject({ lastSeenAt: at(2), client: { address: "192.0.2.1", userAgent: "curl" } });
      const first = await store.sessions.list(ann, 2, undefined, at(0));
      expect([...first, ...(await store.sessions.list(ann, 2, first[1], at(0)))]).toEqual(all);
      expect(await idsOf(ann, at(sessionSeconds * 1000))).toEqual([]);
    });

    test("end one by one, or all but one, and are then listed no more", async () => {
      const [ann, bob] = [await createUser(store, "ann@example.com"), await createUser(store, "bob@example.com")];
      const [one, two, three] = [session(ann, "one"), session(ann, "two"), session(ann, "three")];
      for (const each of [one, two, three]) await store.sessions.create(each);
      expect(await store.sessions.end(bob, one.id, at(0), [])).toBe(false);
      expect(await store.sessions.end(ann, newId(), at(0), [])).toBe(false);
      expect(await store.sessions.end(ann, one.id, at(0), [])).toBe(true);
      expect(await store.sessions.end(ann, one.id, at(0), [])).toBe(false);
      expect(await rotate(store, "one", "next", at(0))).toEqual({ outcome: "bad" });
      expect(await store.sessions.endOthers(ann, two.id, at(0), [])).toEqual([three.id]);
      expect(await idsOf(ann)).toEqual([two.id]);
      expect((await store.sessions.listEndedSince(new Date(0))).toSorted()).toEqual([one.id, three.id].toSorted());
    });

    test("a session without a password needs its user alone", async () => {
      const ann = await createUser(store);
      expect(await store.sessions.create(session(ann, "of another password", { passwordHash: "other" }))).toBe(false);
      expect(await store.sessions.create(session(ann, "without", { passwordHash: undefined }))).toBe(true);
      await store.users.delete(ann, [], at(0));
      expect(await store.sessions.create(session(ann, "of nobody", { passwordHash: undefined }))).toBe(false);
    });

    test("when a session was signed in and expires is known of one's own that lives", async () => {
      const [ann, bob] = [await createUser(store), await createUser(store, "bob@example.com")];
      const { id } = await startSession(store, ann, "token");
      const idleAt = at(refreshTokenSeconds * 1000);
      expect(await store.sessions.find(ann, id, at(1))).toEqual({ createdAt: at(0), idleAt });
      expect(await store.sessions.find(ann, id, idleAt)).toBeUndefined();
      await rotate(store, "token", "next", at(1000));
      const refreshed = { createdAt: at(0), idleAt: at(1000 + refreshTokenSeconds * 1000) };
      expect(await store.sessions.find(ann, id, idleAt)).toEqual(refreshed);
      expect(await store.sessions.find(bob, id, at(1000))).toBeUndefined();
      await store.sessions.end(ann, id, at(1000), []);
      expect(await store.sessions.find(ann, id, at(1000))).toBeUndefined();
    });

    describe("refresh tokens", () => {
      test("a refresh token is exchanged for its successor", async () => {
        const userId = await createUser(store);
        const { id: sessionId } = await startSession(store, userId, "one");
        expect(await store.refreshTokens.findSession(hashSecret("one"))).toEqual({ sessionId, userId });
        expect(await rotate(store, "one", "two", at(1000))).toEqual({
          outcome: "refreshed",
          sessionId,
          userId,
          operator: false,
          secondFactor: false,
          refreshTokenExpiresAt: at(1000 + refreshTokenSeconds * 1000),
        });
        expect(await store.refreshTokens.findSession(hashSecret("two"))).toEqual({ sessionId, userId });
        expect(await rotate(store, "two", "three", at(2000))).toMatchObject({ outcome: "refreshed" });
      });

      test("an unknown or expired token is bad", async () => {
        await startSession(store, await createUser(store), "one");
        expect(await rotate(store, "none", "two", at(0))).toEqual({ outcome: "bad" });
        expect(await rotate(store, "one", "two", at(refreshTokenSeconds * 1000))).toEqual({ outcome: "bad" });
        expect(await store.refreshTokens.findSession(hashSecret("none"))).toBeUndefined();
      });

      test("a retry within the grace period gets the same successor, even two at once", async () => {
        await startSession(store, await createUser(store), "one");
        const [first, second] = await Promise.all([
          rotate(store, "one", "two", at(0)),
          rotate(store, "one", "two", at(0)),
        ]);
        expect(first).toMatchObject({ outcome: "refreshed" });
        expect(second).toEqual(first);
        expect(await rotate(store, "one", "two", at(10_000))).toEqual(first);
        expect(await store.sessions.listEndedSince(new Date(0))).toEqual([]);
      });

      test("a token used again after the grace period ends its session and every token of it", async () => {
        const userId = await createUser(store);
        const { id: sessionId } = await startSession(store, userId, "one");
        await startSession(store, userId, "of another session");
        await rotate(store, "one", "two", at(0));
        expect(await rotate(store, "one", "two", at(10_001))).toEqual({ outcome: "reused", sessionId });
        expect(await rotate(store, "two", "three", at(10_002))).toEqual({ outcome: "bad" });
        expect(await store.sessions.listEndedSince(at(10_000))).toEqual([sessionId]);
        expect(await store.sessions.listEndedSince(at(10_001))).toEqual([]);
        expect(await rotate(store, "of another session", "x", at(10_002))).toMatchObject({ outcome: "refreshed" });
      });

      test("a token whose successor was used is no retry, however soon it comes", async () => {
        const { id: sessionId } = await startSession(store, await createUser(store), "one");
        await rotate(store, "one", "two", at(0));
        await rotate(store, "two", "three", at(1));
        expect(await rotate(store, "one", "two", at(2))).toEqual({ outcome: "reused", sessionId });
        expect(await rotate(store, "three", "four", at(3))).toEqual({ outcome: "bad" });
      });

      test("a session ends for good when its time is up, however often it was refreshed", async () => {
        const expiresAt = at(60_000);
        await startSession(store, await createUser(store), "one", { expiresAt });
        expect(await rotate(store, "one", "two", at(59_000))).toMatchObject({ refreshTokenExpiresAt: expiresAt });
        expect(await rotate(store, "two", "three", expiresAt)).toEqual({ outcome: "bad" });
      });

      test("any token of a session ends it, once", async () => {
        const { id } = await startSession(store, await createUser(store), "one");
        await rotate(store, "one", "two", at(0));
        expect(await store.refreshTokens.endSession(hashSecret("none"), at(0), [])).toBeUndefined();
        expect(await store.refreshTokens.endSession(hashSecret("one"), at(1), [])).toBe(id);
        expect(await store.refreshTokens.endSession(hashSecret("two"), at(2), [])).toBeUndefined();
        expect(await rotate(store, "two", "three", at(2))).toEqual({ outcome: "bad" });
        expect(await store.sessions.listEndedSince(at(0))).toEqual([id]);
      });
    });
  });
}
