import { newId } from "@sandgate/kit/base/ids";
import { addMs, hourMs, minuteMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type ExternalIdentity, identityId, type ResolvedUser } from "../domain/single-sign-on.ts";
import { hashSecret } from "../domain/tokens.ts";
import { usernameKey } from "../domain/users.ts";
import {
  at,
  createUser,
  enableSecondFactor,
  event,
  mail as mailOf,
  registration,
  session,
  startSession,
  subjectsOf,
  takeMails,
} from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

const now = at(0);
const later = addMs(now, 10 * minuteMs);
const mail = () => mailOf("mail");

const attempt = (state: string, browser = "browser") => ({
  stateHash: hashSecret(state),
  browserHash: hashSecret(browser),
  provider: "google",
  redirectUri: "https://app.test/done",
  expiresAt: later,
});
const username = "Ann@Example.com";
const byName = { username, usernameKey: usernameKey(username) };
const identity = (subject: string, more: Partial<ExternalIdentity> = {}): ExternalIdentity => ({
  issuer: "https://issuer.test",
  subject,
  provider: "google",
  name: byName,
  verified: true,
  ...more,
});
const nobody = { created: undefined, holder: undefined, address: "192.0.2.1" };
const known = (id: string) => ({
  ...nobody,
  holder: { id, events: [event("linked")], noticeMail: mail() },
});
const newUser = (id = newId()) => ({ ...nobody, created: { id, events: [event("created")] } });
const idOf = (resolved: ResolvedUser) => (typeof resolved === "string" ? resolved : resolved.userId);

/** What every adapter of `SingleSignOn` does. `open` returns an empty store. */
export function describeSingleSignOn(open: () => Promise<IdentityStore>): void {
  describe("single sign-on", () => {
    let store: IdentityStore;
    beforeEach(async () => {
      store = await open();
    });
    afterEach(() => store.close());

    test("an attempt is taken once, by its own browser, at its own provider, in time", async () => {
      await store.singleSignOn.addAttempt(attempt("state"));
      await store.singleSignOn.addAttempt(attempt("other state"));
      expect(await store.singleSignOn.takeAttempt(attempt("state", "another browser"), now)).toBeUndefined();
      expect(await store.singleSignOn.takeAttempt({ ...attempt("state"), provider: "github" }, now)).toBeUndefined();
      expect(await store.singleSignOn.takeAttempt(attempt("unknown"), now)).toBeUndefined();
      expect(await store.singleSignOn.takeAttempt(attempt("other state"), later)).toBeUndefined();
      const taken = await Promise.all([1, 2, 3].map(() => store.singleSignOn.takeAttempt(attempt("state"), now)));
      expect(taken.filter((each) => each !== undefined)).toEqual([{ redirectUri: "https://app.test/done" }]);
    });

    async function register(link: string): Promise<string> {
      const registered = registration(username, { link, events: [event("registered")] });
      await store.registrations.register(registered);
      return registered.id;
    }

    test("a first sign-in creates a verified user without a password, whom the subject finds from then on", async () => {
      const id = newId();
      const resolved = await store.singleSignOn.resolveUser(identity("1"), newUser(id), now);
      expect(resolved).toEqual({ userId: id, endedSessionIds: [] });
      expect(await subjectsOf(store)).toEqual(["created"]);
      expect(await store.users.findAccount({ id })).toMatchObject({
        user: { username, verified: true, operator: false },
        passwordHash: undefined,
      });
      // The address may have changed at the provider, and be another's by now.
      for (const name of [undefined, { username: "bob@example.com", usernameKey: "bob@example.com" }]) {
        expect(await store.singleSignOn.resolveUser(identity("1", { name }), newUser(), now)).toEqual(resolved);
      }
      expect(await subjectsOf(store)).toEqual(["created"]);
    });

    test("nobody is found or created without a verified address, nor created without a new user", async () => {
      const ann = await register("link");
      expect(await store.singleSignOn.resolveUser(identity("1", { name: undefined }), known(ann), now)).toBe(
        "email_not_verified",
      );
      const name = { username: "bob@example.com", usernameKey: "bob@example.com" };
      expect(await store.singleSignOn.resolveUser(identity("1", { name }), nobody, now)).toBe("unknown");
      expect(await store.users.find([], ["bob@example.com"])).toEqual([]);
    });

    test("a verified user keeps password, links and sessions", async () => {
      const ann = await register("link");
      await store.registrations.verify(hashSecret("link"), "hash", now, []);
      const reset = { tokenHash: hashSecret("reset"), expiresAt: addMs(now, hourMs), mail: mail() };
      await store.passwords.addReset(ann, reset, now);
      await startSession(store, ann, newId(), { passwordHash: undefined });
      const resolved = { userId: ann, endedSessionIds: [] };
      expect(await store.singleSignOn.resolveUser(identity("1"), known(ann), now)).toEqual(resolved);
      expect(await store.singleSignOn.resolveUser(identity("1"), known(ann), now)).toEqual(resolved);
      expect((await subjectsOf(store)).filter((subject) => subject === "linked")).toHaveLength(1);
      // Of the registration, of the reset and of the link.
      expect(await store.mails.takeDue(now, later, 10)).toHaveLength(3);
      expect((await store.users.findAccount({ id: ann }))?.passwordHash).toBe("hash");
      expect(await store.passwords.findReset(hashSecret("reset"), now)).toBeDefined();
      expect(await store.sessions.list(ann, 10, undefined, now)).toHaveLength(1);
    });

    test("a user who was never verified loses password, links and sessions", async () => {
      const ann = await register("link");
      await register("another link");
      await startSession(store, ann, newId(), { passwordHash: undefined });
      const [started] = await store.sessions.list(ann, 10, undefined, now);
      expect(await store.singleSignOn.resolveUser(identity("1"), known(ann), now)).toEqual({
        userId: ann,
        endedSessionIds: [started?.id],
      });
      expect((await subjectsOf(store)).at(-1)).toBe("linked");
      expect(await store.users.findAccount({ id: ann })).toMatchObject({
        user: { verified: true },
        passwordHash: undefined,
      });
      for (const link of ["link", "another link"]) {
        expect(await store.registrations.findVerification(hashSecret(link), now)).toBeUndefined();
        expect(await store.registrations.verify(hashSecret(link), "stranger's", now, [])).toBeUndefined();
      }
    });

    test("nothing happens when the name has another holder than was known", async () => {
      const ann = await register("link");
      for (const first of [nobody, newUser(), known(newId())]) {
        expect(await store.singleSignOn.resolveUser(identity("1"), first, now)).toBe("changed");
      }
      expect(await subjectsOf(store)).toEqual(["registered"]);
      expect((await store.users.findAccount({ id: ann }))?.user.verified).toBe(false);
    });

    test("the same subject of another issuer is another identity", async () => {
      const bob = newId();
      await store.singleSignOn.resolveUser(identity("1"), newUser(), now);
      const name = { username: "bob@example.com", usernameKey: "bob@example.com" };
      const other = identity("1", { issuer: "https://other.test", name });
      expect(idOf(await store.singleSignOn.resolveUser(other, newUser(bob), now))).toBe(bob);
    });

    test("first sign-ins at once, by one provider or several, make one user", async () => {
      const issuers = ["https://a.test", "https://a.test", "https://b.test", "https://c.test"];
      const resolved = await Promise.all(
        issuers.map(async (issuer) => {
          const first = await store.singleSignOn.resolveUser(identity("1", { issuer }), newUser(), now);
          if (first !== "changed") return first;
          const [holder] = await store.users.find([], [byName.usernameKey]);
          return store.singleSignOn.resolveUser(identity("1", { issuer }), known(holder?.id ?? ""), now);
        }),
      );
      expect(new Set(resolved.map(idOf)).size).toBe(1);
      expect((await subjectsOf(store)).filter((subject) => subject === "created")).toHaveLength(1);
    });

    test("of a first sign-in and the mailed link at once, the first decides about the password", async () => {
      const ann = await register("link");
      const [, verified] = await Promise.all([
        store.singleSignOn.resolveUser(identity("1"), known(ann), now),
        store.registrations.verify(hashSecret("link"), "hash", now, []),
      ]);
      const found = await store.users.findAccount({ id: ann });
      expect(found?.passwordHash).toBe(verified ? "hash" : undefined);
    });

    const subject1 = { issuer: "https://issuer.test", subject: "1" };
    const id1 = identityId(subject1.issuer, subject1.subject);
    const bobs = { username: "bob@example.com", usernameKey: "bob@example.com" };

    test("links are listed, newest first, with when they were used and the address that was verified last", async () => {
      const ann = newId();
      await store.singleSignOn.resolveUser(identity("1"), newUser(ann), now);
      await store.singleSignOn.resolveUser(identity("2", { provider: "microsoft" }), known(ann), at(1));
      await store.singleSignOn.resolveUser(identity("3", { name: bobs }), newUser(), at(1));
      const first = { ...subject1, id: id1, provider: "google", username, linkedAt: now, lastUsedAt: now };
      const { subject: _, ...listed } = first;
      const second = {
        id: identityId(subject1.issuer, "2"),
        provider: "microsoft",
        linkedAt: at(1),
        lastUsedAt: at(1),
      };
      expect(await store.singleSignOn.list(ann)).toEqual([{ ...listed, ...second }, listed]);
      const changed = { username: "new@example.com", usernameKey: "new@example.com" };
      const unverified = identity("1", { name: changed, verified: false });
      expect(await store.singleSignOn.resolveUser(unverified, newUser(), at(2))).toBe("email_not_verified");
      expect((await store.singleSignOn.list(ann))[1]).toEqual(listed);
      const verified = identity("1", { name: changed });
      expect(idOf(await store.singleSignOn.resolveUser(verified, newUser(), at(3)))).toBe(ann);
      const used = { ...listed, username: "new@example.com", lastUsedAt: at(3) };
      expect((await store.singleSignOn.list(ann))[1]).toEqual(used);
      expect(idOf(await store.singleSignOn.resolveUser(unverified, newUser(), at(4)))).toBe(ann);
      expect((await store.users.find([ann], []))[0]?.username).toBe(username);
    });

    test("an account of the address is linked to a user with a second factor only after a recent sign-in there", async () => {
      const ann = await createUser(store, username);
      await enableSecondFactor(store, ann);
      const resolve = (ms: number) => store.singleSignOn.resolveUser(identity("1"), known(ann), at(ms));
      expect(await resolve(0)).toBe("sign_in_needed");
      await startSession(store, ann, "elsewhere", { client: { address: "198.51.100.1", userAgent: "" } });
      expect(await resolve(0)).toBe("sign_in_needed");
      const { id } = await startSession(store, ann, "here", { client: { address: "192.0.2.1", userAgent: "" } });
      expect(await resolve(5 * minuteMs)).toBe("sign_in_needed");
      await store.sessions.end(ann, id, at(1), []);
      expect(await resolve(1)).toBe("sign_in_needed");
      expect(await store.singleSignOn.list(ann)).toEqual([]);
      await startSession(store, ann, "again", { client: { address: "192.0.2.1", userAgent: "" } });
      expect(idOf(await resolve(5 * minuteMs - 1))).toBe(ann);
      expect(idOf(await resolve(minuteMs * 60))).toBe(ann);
    });

    const unlink = (userId: string, id: string, keptSessionId = "") =>
      store.singleSignOn.unlink(
        { userId, id, keptSessionId },
        { noticeMail: mailOf("unlinked"), events: [event("unlinked")] },
        now,
      );

    test("a link that is removed ends all sessions but one, and comes back only after a recent sign-in", async () => {
      const ann = await createUser(store, username);
      await store.singleSignOn.resolveUser(identity("1"), known(ann), now);
      const byLink = { passwordHash: undefined, identity: subject1 };
      const there = await startSession(store, ann, "thief's", byLink);
      const own = await startSession(store, ann, "own", { client: { address: "192.0.2.1", userAgent: "" } });
      await takeMails(store, now);
      expect(await unlink(newId(), id1)).toBe("unknown");
      expect(await unlink(ann, newId())).toBe("unknown");
      expect(await unlink(ann, id1, own.id)).toEqual([there.id]);
      expect(await unlink(ann, id1, own.id)).toBe("unknown");
      expect(await takeMails(store, now)).toEqual(["unlinked"]);
      expect((await subjectsOf(store)).filter((subject) => subject === "unlinked")).toHaveLength(1);
      expect(await store.singleSignOn.list(ann)).toEqual([]);
      expect(await store.sessions.create(session(ann, "late", byLink))).toBe(false);
      const resolve = (subject: string, ms: number) =>
        store.singleSignOn.resolveUser(identity(subject), known(ann), at(ms));
      expect(await resolve("1", 5 * minuteMs)).toBe("sign_in_needed");
      expect(idOf(await resolve("another", 5 * minuteMs))).toBe(ann);
      expect(idOf(await resolve("1", 0))).toBe(ann);
      expect(await store.singleSignOn.list(ann)).toHaveLength(2);
    });

    test("of the last two ways to sign in one stays, also when both are removed at once", async () => {
      const ann = newId();
      await store.singleSignOn.resolveUser(identity("1"), newUser(ann), now);
      await store.singleSignOn.resolveUser(identity("2"), known(ann), now);
      const ids = (await store.singleSignOn.list(ann)).map(({ id }) => id);
      const removed = await Promise.all(ids.map((id) => unlink(ann, id)));
      expect(removed.toSorted()).toEqual([[], "last"]);
      const [left] = await store.singleSignOn.list(ann);
      expect(await unlink(ann, left?.id ?? "")).toBe("last");
    });

    test("no session outlives the link that it began by, however the removal is timed", async () => {
      const ann = await createUser(store, username);
      await store.singleSignOn.resolveUser(identity("1"), known(ann), now);
      const starting = Array.from({ length: 10 }, (_, i) =>
        store.sessions.create(session(ann, `token ${i}`, { passwordHash: undefined, identity: subject1 })),
      );
      await Promise.all([unlink(ann, id1), ...starting]);
      expect(await store.sessions.list(ann, 20, undefined, now)).toEqual([]);
    });

    test("a deleted user's identity is free", async () => {
      const [ann, again] = [newId(), newId()];
      await store.singleSignOn.resolveUser(identity("1"), newUser(ann), now);
      await store.users.delete(ann, [], now);
      expect(await store.singleSignOn.resolveUser(identity("1"), nobody, now)).toBe("unknown");
      expect(idOf(await store.singleSignOn.resolveUser(identity("1"), newUser(again), now))).toBe(again);
      expect(idOf(await store.singleSignOn.resolveUser(identity("1"), newUser(), now))).toBe(again);
    });
  });
}
