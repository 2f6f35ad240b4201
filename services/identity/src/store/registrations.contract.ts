import { newId } from "@sandgate/kit/base/ids";
import { dayMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { hashSecret } from "../domain/tokens.ts";
import { at, createUser, event, mail, registration, subjectsOf, takeMails } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `Registrations` does. `open` returns an empty store. */
export function describeRegistrations(open: () => Promise<IdentityStore>): void {
  describe("registrations", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const passwordOf = async (usernameKey: string) => (await store.users.findAccount({ usernameKey }))?.passwordHash;

    test("a new user is unverified, and has a mail to be sent and an event in the outbox", async () => {
      const ann = registration("Ann@Example.com");
      expect(await store.registrations.register(ann)).toBe("created");
      const user = {
        id: ann.id,
        username: "Ann@Example.com",
        verified: false,
        operator: false,
        disabled: false,
        createdAt: at(0),
      };
      expect(await store.users.findAccount({ usernameKey: "ann@example.com" })).toEqual({
        user,
        passwordHash: "hash",
      });
      expect(await subjectsOf(store)).toEqual(["created"]);
      expect(await takeMails(store, at(0))).toEqual(["verify"]);
    });

    test("a name is unique whatever its case, even when several register it at once", async () => {
      const names = ["ann@example.com", "ANN@example.com", "Ann@Example.com"];
      const outcomes = await Promise.all(names.map((name) => store.registrations.register(registration(name))));
      expect(outcomes.toSorted()).toEqual(["created", "renewed", "renewed"]);
      expect(await store.users.find([], ["ann@example.com"])).toHaveLength(1);
      expect(await subjectsOf(store)).toEqual(["created"]);
    });

    test("a verified user's name stays theirs; a mail tells them", async () => {
      await createUser(store);
      await takeMails(store, at(0));
      expect(await store.registrations.register(registration("ANN@example.com", { passwordHash: "other" }))).toBe(
        "taken",
      );
      expect((await store.users.findAccount({ usernameKey: "ann@example.com" }))?.passwordHash).toBe("hash");
      expect(await takeMails(store, at(0))).toEqual(["notice"]);
    });

    test("a later registration changes no earlier one; who follows a link first decides the password", async () => {
      const eve = registration("ann@example.com", { passwordHash: "eve's", link: "eve's" });
      await store.registrations.register(eve);
      await store.registrations.register(registration("ann@example.com", { passwordHash: "later", link: "later" }));
      expect(await passwordOf("ann@example.com")).toBe("eve's");
      expect(await store.registrations.findVerification(hashSecret("later"), at(0))).toEqual({
        userId: eve.id,
        username: "ann@example.com",
      });
      expect(await store.registrations.verify(hashSecret("later"), "ann's", at(0), [])).toEqual([]);
      expect(await passwordOf("ann@example.com")).toBe("ann's");
      expect(await store.registrations.verify(hashSecret("eve's"), "eve's", at(0), [])).toBeUndefined();
      expect(await passwordOf("ann@example.com")).toBe("ann's");
    });

    test("a link verifies once, until it expires", async () => {
      await store.registrations.register(registration("ann@example.com", { link: "one" }));
      expect(await store.registrations.verify(hashSecret("another"), "hash", at(0), [])).toBeUndefined();
      expect(await store.registrations.verify(hashSecret("one"), "hash", at(dayMs), [])).toBeUndefined();
      expect(await store.registrations.findVerification(hashSecret("one"), at(dayMs))).toBeUndefined();
      expect(await store.registrations.verify(hashSecret("one"), "hash", at(dayMs - 1), [])).toEqual([]);
      expect(await store.registrations.verify(hashSecret("one"), "hash", at(0), [])).toBeUndefined();
      expect((await store.users.find([], ["ann@example.com"]))[0]?.verified).toBe(true);
    });

    test("only an unverified user gets another link", async () => {
      const another = (link: string) => ({
        tokenHash: hashSecret(link),
        expiresAt: at(dayMs),
        mail: mail("again"),
      });
      expect(await store.registrations.renew(newId(), another("a"), at(0))).toBe(false);
      const ann = registration("ann@example.com", { passwordHash: "eve's" });
      await store.registrations.register(ann);
      expect(await store.registrations.renew(ann.id, another("b"), at(0))).toBe(true);
      expect(await store.registrations.verify(hashSecret("b"), "ann's", at(0), [])).toEqual([]);
      expect(await passwordOf("ann@example.com")).toBe("ann's");
      expect(await store.registrations.renew(ann.id, another("c"), at(0))).toBe(false);
      expect(await takeMails(store, at(0))).toEqual(["verify", "again"]);
    });

    test("a link that is renewed while another is followed doesn't work after that", async () => {
      const ann = registration("ann@example.com", { link: "followed" });
      await store.registrations.register(ann);
      const links = Array.from({ length: 8 }, (_, i) => `renewed ${i}`);
      const renewals = links.map((link) =>
        store.registrations.renew(
          ann.id,
          { tokenHash: hashSecret(link), expiresAt: at(dayMs), mail: mail("again") },
          at(0),
        ),
      );
      await Promise.all([...renewals, store.registrations.verify(hashSecret("followed"), "hash", at(0), [])]);
      for (const link of links)
        expect(await store.registrations.findVerification(hashSecret(link), at(0))).toBeUndefined();
    });

    test("a registration without mails creates the user, whom a link can be sent later, and tells others nothing", async () => {
      const ann = registration("ann@example.com", { mails: undefined });
      expect(await store.registrations.register(ann)).toBe("created");
      expect(await store.registrations.register(registration("ann@example.com", { mails: undefined }))).toBe("renewed");
      expect(await takeMails(store, at(0))).toEqual([]);
      const link = { tokenHash: hashSecret("later"), expiresAt: at(dayMs), mail: mail("again") };
      expect(await store.registrations.renew(ann.id, link, at(0))).toBe(true);
      expect(await store.registrations.verify(hashSecret("later"), "own", at(0), [])).toEqual([]);
      expect(await store.registrations.register(registration("ann@example.com", { mails: undefined }))).toBe("taken");
      expect(await takeMails(store, at(0))).toEqual(["again"]);
    });

    test("an account that was never verified is deleted once it is old and has no link that works", async () => {
      const old = registration("old@example.com");
      const renewed = registration("renewed@example.com");
      const young = registration("young@example.com", { createdAt: at(5 * dayMs) });
      for (const each of [old, renewed, young]) await store.registrations.register(each);
      await createUser(store, "verified@example.com");
      const link = { tokenHash: hashSecret("again"), expiresAt: at(6 * dayMs), mail: mail("again") };
      await store.registrations.renew(renewed.id, link, at(5 * dayMs));
      const [before, now] = [at(4 * dayMs), at(5 * dayMs)];
      expect(await store.registrations.listAbandoned(before, now, 10)).toEqual([old.id]);
      expect(await store.registrations.listAbandoned(before, at(6 * dayMs), 10)).toHaveLength(2);
      for (const each of [renewed, young])
        expect(await store.registrations.deleteAbandoned(each.id, [], now)).toBe(false);
      expect(await store.registrations.deleteAbandoned(old.id, [event("deleted")], now)).toBe(true);
      expect(await store.registrations.deleteAbandoned(old.id, [event("deleted")], now)).toBe(false);
      expect(await store.users.findAccount({ id: old.id })).toBeUndefined();
      expect((await subjectsOf(store)).filter((subject) => subject === "deleted")).toHaveLength(1);
      expect(await store.registrations.verify(hashSecret("again"), "hash", now, [])).toEqual([]);
    });
  });
}
