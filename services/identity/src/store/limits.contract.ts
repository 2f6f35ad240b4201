import { newId } from "@sandgate/kit/base/ids";
import { describe, expect, test } from "vitest";
import type { Budget } from "../domain/rate-counters.ts";
import { usernameKey } from "../domain/users.ts";
import type { IdentityStore } from "./store.ts";

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;
/** In the far future: MongoDB removes what has expired by its own clock. */
const at = (ms: number) => new Date(Date.UTC(2100, 0, 1) + ms);
const bytes = (fill: number) => new Uint8Array(32).fill(fill);
const budget = (fill: number, limit: number, windowMs = minuteMs): Budget => ({ key: bytes(fill), limit, windowMs });

/** What every store does behind the limits on sign-ins and mails. */
export function describeLimits(storeOf: () => IdentityStore): void {
  describe("budgets", () => {
    test("last for their window, which begins with the first", async () => {
      const store = storeOf();
      const spend = (ms: number) => store.spend([budget(1, 2, 3 * minuteMs)], at(ms));
      expect(await spend(0)).toBeUndefined();
      expect(await spend(1)).toBeUndefined();
      expect(await spend(3 * minuteMs - 1)).toEqual({ index: 0, endsAt: at(3 * minuteMs) });
      expect(await spend(3 * minuteMs)).toBeUndefined();
    });

    test("are taken from together or not at all", async () => {
      const store = storeOf();
      expect(await store.spend([budget(1, 2), budget(2, 1)], at(0))).toBeUndefined();
      expect(await store.spend([budget(1, 2), budget(2, 1)], at(1))).toEqual({ index: 1, endsAt: at(minuteMs) });
      expect(await store.spend([budget(1, 2)], at(2))).toBeUndefined();
      expect(await store.spend([budget(1, 2)], at(3))).toMatchObject({ index: 0 });
    });

    test("never give more than they have when many ask at once", async () => {
      const store = storeOf();
      const asked = Array.from({ length: 20 }, () => store.spend([budget(1, 7), budget(2, 100)], at(0)));
      expect((await Promise.all(asked)).filter((refusal) => refusal === undefined)).toHaveLength(7);
    });
  });

  describe("networks that users signed in from", () => {
    test("are known to their user alone, for 90 days after the last time", async () => {
      const store = storeOf();
      const isKnown = (userId: string, fill: number, ms: number) => store.isKnownNetwork(userId, bytes(fill), at(ms));
      await store.noteNetwork("ann", bytes(1), at(0));
      expect(await isKnown("ann", 1, 0)).toBe(true);
      expect(await isKnown("ann", 2, 0)).toBe(false);
      expect(await isKnown("bob", 1, 0)).toBe(false);
      await store.noteNetwork("ann", bytes(1), at(dayMs));
      expect(await isKnown("ann", 1, 91 * dayMs - 1)).toBe(true);
      expect(await isKnown("ann", 1, 91 * dayMs)).toBe(false);
    });

    test("are forgotten with the password and with the user", async () => {
      const store = storeOf();
      const username = "ann@example.com";
      const ann = { id: newId(), username, usernameKey: usernameKey(username), passwordHash: "hash", events: [] };
      const link = { tokenHash: bytes(9), expiresAt: at(dayMs), mail: { id: newId(), sealed: bytes(0) } };
      await store.registerUser({ ...ann, createdAt: at(0), mails: { verification: link, notice: link.mail } });
      await store.noteNetwork(ann.id, bytes(1), at(0));
      await store.verifyEmail(link.tokenHash, undefined, at(0), []);
      expect(await store.isKnownNetwork(ann.id, bytes(1), at(0))).toBe(false);
      await store.noteNetwork(ann.id, bytes(1), at(0));
      await store.deleteUser(ann.id, [], at(0));
      expect(await store.isKnownNetwork(ann.id, bytes(1), at(0))).toBe(false);
    });
  });
}
