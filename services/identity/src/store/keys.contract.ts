import { newId } from "@sandgate/kit/base/ids";
import { dayMs, hourMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { at, createUser, rotate, session } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `Keys` does. `open` returns an empty store. */
export function describeKeys(open: () => Promise<IdentityStore>): void {
  describe("keys", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const key = (use: "session" | "refresh", createdAt: Date) => ({
      id: newId(),
      use,
      createdAt,
      publicJwk: "{}",
      sealed: new Uint8Array([1, 2]),
    });

    test("of several replicas that make a key at once, one wins", async () => {
      const added = await Promise.all([1, 2, 3].map((ms) => store.keys.add(key("session", at(ms)), at(0))));
      expect(added.filter(Boolean)).toHaveLength(1);
      expect(await store.keys.add(key("refresh", at(1)), new Date(0))).toBe(true);
      expect(await store.keys.list()).toHaveLength(2);
    });

    test("keys are listed newest first and removed by id", async () => {
      const older = key("session", at(0));
      const newer = key("session", at(dayMs));
      await store.keys.add(older, new Date(0));
      await store.keys.add(newer, at(0));
      expect(await store.keys.list()).toEqual([newer, older]);
      await store.keys.remove([older.id]);
      expect(await store.keys.list()).toEqual([newer]);
    });

    test("all keys are replaced, and sessions go on", async () => {
      await store.keys.add(key("session", at(0)), new Date(0));
      const userId = await createUser(store);
      await store.sessions.create(session(userId, "a"));
      const fresh = [key("session", at(1)), key("refresh", at(2))];
      await store.keys.replace(fresh);
      expect(await store.keys.list()).toEqual(fresh.toReversed());
      expect(await store.sessions.list(userId, 10, undefined, at(0))).toHaveLength(1);
    });

    test("all keys are replaced together with the end of every session", async () => {
      await store.keys.add(key("session", at(0)), new Date(0));
      await store.keys.add(key("refresh", at(0)), new Date(0));
      const userId = await createUser(store);
      await store.sessions.create(session(userId, "a"));
      const fresh = [key("session", at(1)), key("refresh", at(2))];
      await store.keys.replaceAll(fresh, at(-dayMs));
      expect(await store.keys.list()).toEqual(fresh.toReversed());
      expect(await store.sessions.list(userId, 10, undefined, at(0))).toEqual([]);
      expect(await rotate(store, "a", "b", at(1))).toEqual({ outcome: "bad" });
      expect(await store.sessions.listEndedSince(at(-hourMs))).toEqual([]);
    });
  });
}
