import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { hashSecret } from "../domain/tokens.ts";
import {
  apiToken,
  at,
  createProviderUser,
  createUser,
  enableSecondFactor,
  event,
  firstOperator,
  mail,
  pendingSecondFactor,
  recoveryCodes,
  rotate,
  sealedSecret,
  secondFactorExpiry,
  secondFactorStep,
  startSession,
  subjectsOf,
  takeMails,
} from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

const now = at(0);
const byProvider = { passwordHash: undefined };

/** What every adapter of `SecondFactors` does. `open` returns an empty store. */
export function describeSecondFactors(open: () => Promise<IdentityStore>): void {
  describe("second factors", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("one is enabled once it is confirmed, in time, and only the last that was added", async () => {
      const ann = await createProviderUser(store);
      const [first, second] = [pendingSecondFactor(ann, "first"), pendingSecondFactor(ann, "second")];
      const confirm = (id: string, at = now) =>
        store.secondFactors.enable(
          {
            id,
            userId: ann,
            step: secondFactorStep,
            recoveryCodeHashes: recoveryCodes.map(hashSecret),
            noticeMail: mail("enabled"),
            events: [event("enabled")],
          },
          at,
        );
      expect(await store.secondFactors.add(first)).toBe(true);
      expect(await store.secondFactors.add(second)).toBe(true);
      expect(await store.secondFactors.findPending(ann, now)).toEqual({
        id: second.id,
        sealed: sealedSecret("second"),
      });
      expect(await store.secondFactors.findPending(ann, secondFactorExpiry)).toBeUndefined();
      expect(await confirm(first.id)).toBe(false);
      expect(await confirm(second.id, secondFactorExpiry)).toBe(false);
      expect(await store.secondFactors.find(ann)).toBeUndefined();
      expect(await store.otpAttempts.begin(ann, { fromOwnNetwork: false }, now)).toEqual({ outcome: "none" });
      const confirmed = await Promise.all([1, 2, 3].map(() => confirm(second.id)));
      expect(confirmed.filter(Boolean)).toHaveLength(1);
      expect(await store.secondFactors.find(ann)).toEqual({ recoveryCodesLeft: 3 });
      expect(await takeMails(store, now)).toEqual(["enabled"]);
      expect(await subjectsOf(store)).toEqual(["enabled"]);
      expect(await store.secondFactors.add(pendingSecondFactor(ann))).toBe(false);
      expect(await store.secondFactors.findPending(ann, now)).toBeUndefined();
    });

    test("a session keeps through refreshes that it was signed in with one, until that is removed", async () => {
      const ann = await createProviderUser(store);
      await enableSecondFactor(store, ann);
      await startSession(store, ann, "with", { ...byProvider, secondFactor: true });
      await startSession(store, ann, "without", byProvider);
      expect(await rotate(store, "with", "with 2", now)).toMatchObject({ outcome: "refreshed", secondFactor: true });
      expect(await rotate(store, "with 2", "with 3", now)).toMatchObject({ secondFactor: true });
      expect(await rotate(store, "without", "without 2", now)).toMatchObject({ secondFactor: false });
      await takeMails(store, now);
      const removal = { noticeMail: mail("removed"), endSessions: false, events: [event("removed")] };
      expect(await store.secondFactors.remove(ann, removal, now)).toEqual([]);
      expect(await store.secondFactors.remove(ann, removal, now)).toBeUndefined();
      expect(await takeMails(store, now)).toEqual(["removed"]);
      expect(await subjectsOf(store)).toEqual(["removed"]);
      expect(await rotate(store, "with 3", "with 4", now)).toMatchObject({ outcome: "refreshed", secondFactor: false });
      expect(await store.secondFactors.find(ann)).toBeUndefined();
      expect(await store.secondFactors.add(pendingSecondFactor(ann))).toBe(true);
    });

    test("a removal ends all sessions if it shall, and nobody else's", async () => {
      const [ann, bob] = [await createProviderUser(store), await createProviderUser(store)];
      for (const each of [ann, bob]) await enableSecondFactor(store, each);
      const [anns, bobs] = [
        await startSession(store, ann, "ann's", { ...byProvider, secondFactor: true }),
        await startSession(store, bob, "bob's", { ...byProvider, secondFactor: true }),
      ];
      const removal = { noticeMail: mail("removed"), endSessions: true, events: [] };
      expect(await store.secondFactors.remove(ann, removal, now)).toEqual([anns.id]);
      expect(await rotate(store, "ann's", "next", now)).toEqual({ outcome: "bad" });
      expect(await rotate(store, "bob's", "next", now)).toMatchObject({ sessionId: bobs.id, secondFactor: true });
      expect(await store.secondFactors.find(bob)).toEqual({ recoveryCodesLeft: 3 });
    });

    test("one of a deleted user is gone", async () => {
      const ann = await createProviderUser(store);
      await enableSecondFactor(store, ann);
      await store.users.delete(ann, [], now);
      expect(await store.secondFactors.find(ann)).toBeUndefined();
      expect(await store.otpAttempts.begin(ann, { fromOwnNetwork: false }, now)).toEqual({ outcome: "none" });
    });

    test("an operator's API token has the second factor of the session that made it, while the user has one", async () => {
      const { user: operator, events } = firstOperator("root@localhost");
      await store.users.createFirstOperator({ user: operator, events });
      const [without, withOne] = [
        await startSession(store, operator.id, "without"),
        await startSession(store, operator.id, "with", { secondFactor: true }),
      ];
      const other = await startSession(store, await createUser(store), "other's", { secondFactor: true });
      const sessionIds = { without: without.id, withOne: withOne.id, others: other.id };
      for (const [name, sessionId] of Object.entries(sessionIds)) {
        await store.apiTokens.create(apiToken(operator.id, name, { sessionId }), 0, undefined, []);
      }
      const found = async (name: string) => (await store.apiTokens.find(hashSecret(name)))?.secondFactor;
      const all = async () => Promise.all(Object.keys(sessionIds).map(found));
      await store.secondFactors.add(pendingSecondFactor(operator.id));
      expect(await all()).toEqual([false, false, false]);
      await enableSecondFactor(store, operator.id);
      expect(await all()).toEqual([false, true, false]);
      const removal = { noticeMail: mail("removed"), endSessions: false, events: [] };
      await store.secondFactors.remove(operator.id, removal, now);
      expect(await all()).toEqual([false, false, false]);
    });
  });
}
