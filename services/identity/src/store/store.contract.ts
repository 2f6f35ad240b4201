import { newId } from "@sandgate/kit/base/ids";
import { addMs } from "@sandgate/kit/base/time";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import { Role } from "@sandgate/proto/common/v1/access";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { refreshTokenSeconds, sessionSeconds } from "../domain/sessions.ts";
import { hashSecret } from "../domain/tokens.ts";
import { usernameKey } from "../domain/users.ts";
import { describeLimits } from "./limits.contract.ts";
import type { IdentityStore, NewApiToken, NewSession, Registration } from "./store.ts";

/** In the far future: MongoDB removes what has expired by its own clock. */
const at = (ms: number) => new Date(Date.UTC(2100, 0, 1) + ms);
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

const event = (subject: string) => ({ id: newId(), subject, bytes: new Uint8Array([1]) });
const mail = (text: string) => ({ id: newId(), sealed: new Uint8Array(Buffer.from(text)) });
const otherClient = { address: "2001:db8::1", userAgent: "Firefox" };
const textOf = (bytes: Uint8Array) => Buffer.from(bytes).toString();

/** What every store of identity does, whatever the database. `open` returns an empty one. */
export function describeIdentityStore(name: string, open: () => Promise<IdentityStore>): void {
  describe(`identity store on ${name}`, () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    const subjects = async () => (await store.outbox.unsent(100)).map(({ subject }) => subject);

    function registration(username: string, more: Partial<Registration> & { link?: string } = {}): Registration {
      const { link = newId(), createdAt = at(0), ...rest } = more;
      return {
        id: newId(),
        username,
        usernameKey: usernameKey(username),
        passwordHash: "hash",
        createdAt,
        mails: {
          verification: { tokenHash: hashSecret(link), expiresAt: addMs(createdAt, dayMs), mail: mail("verify") },
          notice: mail("notice"),
        },
        events: [event("created")],
        ...rest,
      };
    }

    async function createUser(username = "ann@example.com"): Promise<string> {
      const link = newId();
      const user = registration(username, { link });
      await store.registerUser(user);
      await store.verifyEmail(hashSecret(link), undefined, at(0), []);
      return user.id;
    }

    function session(userId: string, token: string, more: Partial<NewSession> = {}): NewSession {
      return {
        id: newId(),
        userId,
        passwordHash: "hash",
        client: { address: "192.0.2.1", userAgent: "curl" },
        createdAt: at(0),
        expiresAt: at(sessionSeconds * 1000),
        refreshTokenHash: hashSecret(token),
        refreshTokenExpiresAt: at(refreshTokenSeconds * 1000),
        events: [],
        ...more,
      };
    }

    function apiToken(userId: string, token: string, more: Partial<NewApiToken> = {}): NewApiToken {
      return {
        id: newId(),
        userId,
        description: "ci",
        hint: "sgt_abcd",
        workspaceId: undefined,
        role: Role.UNSPECIFIED,
        expiresAt: undefined,
        createdAt: at(0),
        tokenHash: hashSecret(token),
        ...more,
      };
    }

    const rotate = (token: string, successor: string, now: Date) =>
      store.rotateRefreshToken(hashSecret(token), hashSecret(successor), otherClient, now);

    async function takeMails(now: Date): Promise<string[]> {
      return (await store.takeDueMails(now, addMs(now, 60_000), 100)).map(({ sealed }) => textOf(sealed));
    }

    describe("users", () => {
      test("a new user is unverified, and has a mail to be sent and an event in the outbox", async () => {
        const ann = registration("Ann@Example.com");
        expect(await store.registerUser(ann)).toBe("created");
        const user = {
          id: ann.id,
          username: "Ann@Example.com",
          verified: false,
          operator: false,
          disabled: false,
          createdAt: at(0),
        };
        expect(await store.findSignIn({ usernameKey: "ann@example.com" })).toEqual({ user, passwordHash: "hash" });
        expect(await subjects()).toEqual(["created"]);
        expect(await takeMails(at(0))).toEqual(["verify"]);
      });

      test("a name is unique whatever its case, even when several register it at once", async () => {
        const names = ["ann@example.com", "ANN@example.com", "Ann@Example.com"];
        const outcomes = await Promise.all(names.map((name) => store.registerUser(registration(name))));
        expect(outcomes.toSorted()).toEqual(["created", "renewed", "renewed"]);
        expect(await store.findUsers([], ["ann@example.com"])).toHaveLength(1);
        expect(await subjects()).toEqual(["created"]);
      });

      test("a verified user's name stays theirs; a mail tells them", async () => {
        await createUser();
        await takeMails(at(0));
        expect(await store.registerUser(registration("ANN@example.com", { passwordHash: "other" }))).toBe("taken");
        expect((await store.findSignIn({ usernameKey: "ann@example.com" }))?.passwordHash).toBe("hash");
        expect(await takeMails(at(0))).toEqual(["notice"]);
      });

      const passwordOf = async (usernameKey: string) => (await store.findSignIn({ usernameKey }))?.passwordHash;

      test("a later registration changes no earlier one; the link that is followed decides the password", async () => {
        await store.registerUser(registration("ann@example.com", { passwordHash: "eve's", link: "eve's" }));
        await store.registerUser(registration("ann@example.com", { passwordHash: "ann's", link: "ann's" }));
        expect(await passwordOf("ann@example.com")).toBe("eve's");
        expect(await store.findVerification(hashSecret("ann's"), at(0))).toMatchObject({
          username: "ann@example.com",
          hasPassword: true,
        });
        expect(await store.verifyEmail(hashSecret("ann's"), undefined, at(0), [])).toEqual([]);
        expect(await passwordOf("ann@example.com")).toBe("ann's");
        expect(await store.verifyEmail(hashSecret("eve's"), undefined, at(0), [])).toBeUndefined();
        expect(await passwordOf("ann@example.com")).toBe("ann's");
      });

      test("a link verifies once, until it expires", async () => {
        await store.registerUser(registration("ann@example.com", { link: "one" }));
        expect(await store.verifyEmail(hashSecret("another"), undefined, at(0), [])).toBeUndefined();
        expect(await store.verifyEmail(hashSecret("one"), undefined, at(dayMs), [])).toBeUndefined();
        expect(await store.findVerification(hashSecret("one"), at(dayMs))).toBeUndefined();
        expect(await store.verifyEmail(hashSecret("one"), undefined, at(dayMs - 1), [])).toEqual([]);
        expect(await store.verifyEmail(hashSecret("one"), undefined, at(0), [])).toBeUndefined();
        expect((await store.findUsers([], ["ann@example.com"]))[0]?.verified).toBe(true);
      });

      test("only an unverified user gets another link, which has no password", async () => {
        const another = (link: string) => ({
          tokenHash: hashSecret(link),
          expiresAt: at(dayMs),
          mail: mail("again"),
        });
        expect(await store.renewVerification(newId(), another("a"), at(0))).toBe(false);
        const ann = registration("ann@example.com", { passwordHash: "eve's" });
        await store.registerUser(ann);
        expect(await store.renewVerification(ann.id, another("b"), at(0))).toBe(true);
        expect(await store.findVerification(hashSecret("b"), at(0))).toMatchObject({ hasPassword: false });
        expect(await store.verifyEmail(hashSecret("b"), undefined, at(0), [])).toBeUndefined();
        expect(await store.verifyEmail(hashSecret("b"), "ann's", at(0), [])).toEqual([]);
        expect(await passwordOf("ann@example.com")).toBe("ann's");
        expect(await store.renewVerification(ann.id, another("c"), at(0))).toBe(false);
        expect(await takeMails(at(0))).toEqual(["verify", "again"]);
      });

      test("a link that is renewed while another is followed doesn't work after that", async () => {
        const ann = registration("ann@example.com", { link: "followed" });
        await store.registerUser(ann);
        const links = Array.from({ length: 8 }, (_, i) => `renewed ${i}`);
        const renewals = links.map((link) =>
          store.renewVerification(
            ann.id,
            { tokenHash: hashSecret(link), expiresAt: at(dayMs), mail: mail("again") },
            at(0),
          ),
        );
        await Promise.all([...renewals, store.verifyEmail(hashSecret("followed"), undefined, at(0), [])]);
        for (const link of links) expect(await store.findVerification(hashSecret(link), at(0))).toBeUndefined();
      });

      test("a registration without mails creates the user, whom a link can be sent later, and tells others nothing", async () => {
        const ann = registration("ann@example.com", { mails: undefined });
        expect(await store.registerUser(ann)).toBe("created");
        expect(await store.registerUser(registration("ann@example.com", { mails: undefined }))).toBe("renewed");
        expect(await takeMails(at(0))).toEqual([]);
        const link = { tokenHash: hashSecret("later"), expiresAt: at(dayMs), mail: mail("again") };
        expect(await store.renewVerification(ann.id, link, at(0))).toBe(true);
        expect(await store.verifyEmail(hashSecret("later"), "own", at(0), [])).toEqual([]);
        expect(await store.registerUser(registration("ann@example.com", { mails: undefined }))).toBe("taken");
        expect(await takeMails(at(0))).toEqual(["again"]);
      });

      test("the first operator is created once, however many try", async () => {
        const operator = (username: string) => ({
          id: newId(),
          username,
          usernameKey: usernameKey(username),
          passwordHash: "hash",
          createdAt: at(0),
          events: [event("created")],
        });
        expect(await store.hasOperator()).toBe(false);
        const created = await Promise.all(
          ["admin@localhost", "admin@localhost", "root@localhost"].map((name) =>
            store.createFirstOperator(operator(name)),
          ),
        );
        expect(created.filter(Boolean)).toHaveLength(1);
        expect(await store.hasOperator()).toBe(true);
        expect(await subjects()).toEqual(["created"]);
        const users = await store.findUsers([], ["admin@localhost", "root@localhost"]);
        expect(users).toMatchObject([{ operator: true, verified: true }]);
      });

      test("users are found by id and by name, each once", async () => {
        const ann = await createUser("ann@example.com");
        const bob = await createUser("bob@example.com");
        const found = await store.findUsers([ann, newId()], ["ann@example.com", "bob@example.com", "eve@example.com"]);
        expect(found.map(({ id }) => id).toSorted()).toEqual([ann, bob].toSorted());
      });
    });

    describe("a user's sessions", () => {
      const idsOf = async (userId: string, now = at(0)) =>
        (await store.listSessions(userId, 10, undefined, now)).map(({ id }) => id);

      test("are listed with when and where they were last used, newest first, in pages", async () => {
        const [ann, bob] = [await createUser("ann@example.com"), await createUser("bob@example.com")];
        const made = ["one", "two", "three"].map((token, i) => session(ann, token, { createdAt: at(i) }));
        for (const each of [...made, session(bob, "bob's")]) await store.createSession(each);
        await rotate("one", "one again", at(5000));
        const all = await store.listSessions(ann, 10, undefined, at(0));
        expect(all.map(({ id }) => id)).toEqual(made.map(({ id }) => id).toReversed());
        expect(all.at(-1)).toEqual({ id: made[0]?.id, createdAt: at(0), lastSeenAt: at(5000), client: otherClient });
        expect(all[0]).toMatchObject({ lastSeenAt: at(2), client: { address: "192.0.2.1", userAgent: "curl" } });
        const first = await store.listSessions(ann, 2, undefined, at(0));
        expect([...first, ...(await store.listSessions(ann, 2, first[1], at(0)))]).toEqual(all);
        expect(await idsOf(ann, at(sessionSeconds * 1000))).toEqual([]);
      });

      test("end one by one, or all but one, and are then listed no more", async () => {
        const [ann, bob] = [await createUser("ann@example.com"), await createUser("bob@example.com")];
        const [one, two, three] = [session(ann, "one"), session(ann, "two"), session(ann, "three")];
        for (const each of [one, two, three]) await store.createSession(each);
        expect(await store.endSession(bob, one.id, at(0), [])).toBe(false);
        expect(await store.endSession(ann, newId(), at(0), [])).toBe(false);
        expect(await store.endSession(ann, one.id, at(0), [])).toBe(true);
        expect(await store.endSession(ann, one.id, at(0), [])).toBe(false);
        expect(await rotate("one", "next", at(0))).toEqual({ outcome: "bad" });
        expect(await store.endOtherSessions(ann, two.id, at(0), [])).toEqual([three.id]);
        expect(await idsOf(ann)).toEqual([two.id]);
        expect((await store.listSessionsEndedSince(new Date(0))).toSorted()).toEqual([one.id, three.id].toSorted());
      });
    });

    describe("administration", () => {
      const operatorOf = (username: string) => ({
        id: newId(),
        username,
        usernameKey: usernameKey(username),
        passwordHash: "hash",
        createdAt: at(0),
        events: [],
      });

      test("users are listed newest first, in pages, or by name", async () => {
        const ids: string[] = [];
        for (const [i, name] of ["ann", "bob", "eve"].entries()) {
          const user = registration(`${name}@example.com`, { createdAt: at(i) });
          await store.registerUser(user);
          ids.unshift(user.id);
        }
        const all = await store.listUsers(undefined, 10, undefined);
        expect(all.map(({ id }) => id)).toEqual(ids);
        const first = await store.listUsers(undefined, 2, undefined);
        expect([...first, ...(await store.listUsers(undefined, 2, first[1]))]).toEqual(all);
        expect(await store.listUsers("bob@example.com", 10, undefined)).toEqual([all[1]]);
        expect(await store.listUsers("nobody@example.com", 10, undefined)).toEqual([]);
      });

      test("a disabled user's sessions end and tokens are unknown, until the user is enabled", async () => {
        const [ann, bob] = [await createUser("ann@example.com"), await createUser("bob@example.com")];
        const [anns, bobs] = [session(ann, "ann's"), session(bob, "bob's")];
        for (const each of [anns, bobs]) await store.createSession(each);
        await store.createApiToken(apiToken(ann, "token"), 0, undefined, []);
        const changed = await store.setUserDisabled(ann, true, at(0), []);
        expect(changed).toMatchObject({ user: { id: ann, disabled: true }, endedSessionIds: [anns.id] });
        expect((await store.setUserDisabled(ann, true, at(1), []))?.endedSessionIds).toEqual([]);
        for (const passwordHash of ["hash", undefined]) {
          expect(await store.createSession(session(ann, "another", { passwordHash }))).toBe(false);
        }
        expect(await rotate("ann's", "next", at(0))).toEqual({ outcome: "bad" });
        expect(await rotate("bob's", "next", at(0))).toMatchObject({ outcome: "refreshed" });
        expect(await store.findApiToken(hashSecret("token"))).toBeUndefined();
        expect((await store.findSignIn({ id: ann }))?.user.disabled).toBe(true);
        expect((await store.setUserDisabled(ann, false, at(2), []))?.user.disabled).toBe(false);
        expect(await store.findApiToken(hashSecret("token"))).toBeDefined();
        expect(await store.createSession(session(ann, "another"))).toBe(true);
        expect(await store.setUserDisabled(newId(), true, at(0), [])).toBeUndefined();
      });

      test("a session without a password needs its user alone", async () => {
        const ann = await createUser();
        expect(await store.createSession(session(ann, "of another password", { passwordHash: "other" }))).toBe(false);
        expect(await store.createSession(session(ann, "without", { passwordHash: undefined }))).toBe(true);
        await store.deleteUser(ann, [], at(0));
        expect(await store.createSession(session(ann, "of nobody", { passwordHash: undefined }))).toBe(false);
      });

      test("no session outlives a user who is disabled while signing in", async () => {
        const ann = await createUser();
        const started: string[] = [];
        const starting = Array.from({ length: 10 }, async (_, i) => {
          const next = session(ann, `token ${i}`);
          if (await store.createSession(next)) started.push(next.id);
        });
        const [changed] = await Promise.all([store.setUserDisabled(ann, true, at(0), []), ...starting]);
        expect(changed?.endedSessionIds.toSorted()).toEqual(started.toSorted());
      });

      test("a deleted user is gone with sessions, tokens, links and mails, and the name is free", async () => {
        const [ann, bob] = [await createUser("ann@example.com"), await createUser("bob@example.com")];
        await takeMails(at(0));
        const [anns, bobs] = [session(ann, "ann's"), session(bob, "bob's")];
        for (const each of [anns, bobs]) await store.createSession(each);
        await store.createApiToken(apiToken(ann, "ann's token"), 0, undefined, []);
        await store.createApiToken(apiToken(bob, "bob's token"), 0, undefined, []);
        const reset = { tokenHash: hashSecret("link"), expiresAt: at(hourMs), mail: mail("reset") };
        await store.addPasswordReset(ann, reset, at(0));
        expect(await store.deleteUser(ann, [event("deleted")], at(0))).toEqual([anns.id]);
        expect(await store.deleteUser(ann, [event("deleted again")], at(0))).toBeUndefined();
        expect((await subjects()).filter((subject) => subject.startsWith("deleted"))).toEqual(["deleted"]);
        expect(await store.findSignIn({ id: ann })).toBeUndefined();
        expect(await store.findApiToken(hashSecret("ann's token"))).toBeUndefined();
        expect(await store.findApiToken(hashSecret("bob's token"))).toBeDefined();
        expect(await store.findPasswordReset(hashSecret("link"), at(0))).toBeUndefined();
        // Bob's, which nobody has said to be sent.
        expect(await takeMails(at(hourMs))).toEqual(["verify"]);
        expect(await store.listSessionsEndedSince(new Date(0))).toEqual([anns.id]);
        expect(await rotate("bob's", "next", at(0))).toMatchObject({ outcome: "refreshed" });
        expect(await store.registerUser(registration("ann@example.com"))).toBe("created");
      });

      test("the last operator stays", async () => {
        const operator = operatorOf("admin@localhost");
        await store.createFirstOperator(operator);
        expect(await store.deleteUser(operator.id, [], at(0))).toBe("last_operator");
        expect(await store.hasOperator()).toBe(true);
      });

      test("an account that was never verified is deleted once it is old and has no link that works", async () => {
        const old = registration("old@example.com");
        const renewed = registration("renewed@example.com");
        const young = registration("young@example.com", { createdAt: at(5 * dayMs) });
        for (const each of [old, renewed, young]) await store.registerUser(each);
        await createUser("verified@example.com");
        const link = { tokenHash: hashSecret("again"), expiresAt: at(6 * dayMs), mail: mail("again") };
        await store.renewVerification(renewed.id, link, at(5 * dayMs));
        const [before, now] = [at(4 * dayMs), at(5 * dayMs)];
        expect(await store.listUnverified(before, now, 10)).toEqual([old.id]);
        expect(await store.listUnverified(before, at(6 * dayMs), 10)).toHaveLength(2);
        for (const each of [renewed, young]) expect(await store.deleteUnverified(each.id, [], now)).toBe(false);
        expect(await store.deleteUnverified(old.id, [event("deleted")], now)).toBe(true);
        expect(await store.deleteUnverified(old.id, [event("deleted")], now)).toBe(false);
        expect(await store.findSignIn({ id: old.id })).toBeUndefined();
        expect((await subjects()).filter((subject) => subject === "deleted")).toHaveLength(1);
        expect(await store.verifyEmail(hashSecret("again"), "hash", now, [])).toEqual([]);
      });
    });

    test("what somebody did has its event in the outbox, and what did not happen has none", async () => {
      const user = registration("ann@example.com", { link: "link" });
      const { id } = user;
      const events = (name: string) => [event(name)];
      await store.registerUser(user);
      for (const name of ["verified", "not again"]) {
        await store.verifyEmail(hashSecret("link"), undefined, at(0), events(name));
      }
      const [one, two, three] = ["one", "two", "three"].map((token) => session(id, token, { events: events(token) }));
      if (!one || !two || !three) throw new Error("three sessions");
      for (const each of [one, two, three]) await store.createSession(each);
      await store.createSession(session(id, "no", { passwordHash: "wrong", events: events("not started") }));
      for (const name of ["signed out", "not again"]) await store.endSessionOf(hashSecret("one"), at(0), events(name));
      for (const name of ["ended", "not again"]) await store.endSession(id, two.id, at(0), events(name));
      for (const name of ["others", "no others"]) await store.endOtherSessions(id, three.id, at(0), events(name));
      await store.createSession(session(id, "four", { events: events("four") }));
      for (const name of ["all others", "no others"]) await store.endOtherSessions(id, three.id, at(0), events(name));
      await rotate("three", "next", at(0));
      await rotate("next", "after", at(1));
      const reuse = (name: string) =>
        store.rotateRefreshToken(hashSecret("three"), hashSecret("next"), otherClient, at(dayMs / 48), events(name));
      for (const name of ["reused", "not again"]) await reuse(name);

      const change = { passwordHash: "new", noticeMail: mail("changed"), events: [] };
      const currentHash = "hash";
      for (const name of ["changed", "not again"]) {
        const changing = { ...change, noticeMail: mail("changed"), events: events(name) };
        await store.changePassword({ id, currentHash, sessionId: three.id }, changing, at(0));
      }
      await store.addPasswordReset(
        id,
        { tokenHash: hashSecret("reset"), expiresAt: at(hourMs), mail: mail("reset") },
        at(0),
      );
      for (const name of ["reset", "not again"]) {
        const changing = { ...change, noticeMail: mail("changed"), events: events(name) };
        await store.resetPassword(hashSecret("reset"), changing, at(0));
      }
      await store.createApiToken(apiToken(id, "token"), 1, undefined, events("token"));
      await store.createApiToken(apiToken(id, "too many"), 1, undefined, events("no token"));
      await store.setUserDisabled(id, true, at(0), events("disabled"));
      await store.setUserDisabled(newId(), true, at(0), events("nobody"));
      const expected = ["created", "verified", "one", "two", "three", "signed out", "ended", "four", "all others"];
      expect(await subjects()).toEqual([...expected, "reused", "changed", "reset", "token", "disabled"]);
    });

    describe("passwords", () => {
      const reset = (link: string) => ({ tokenHash: hashSecret(link), expiresAt: at(hourMs), mail: mail("reset") });
      const change = { passwordHash: "new", noticeMail: mail("changed"), events: [] };
      const another = () => ({ ...change, noticeMail: mail("changed") });
      const passwordOf = async (id: string) => (await store.findSignIn({ id }))?.passwordHash;

      test("a link sets a password once, until it expires, and ends all links and sessions of that user alone", async () => {
        const ann = await createUser("ann@example.com");
        const bob = await createUser("bob@example.com");
        await takeMails(at(0));
        const sessions = [session(ann, "ann's one"), session(ann, "ann's two")];
        for (const each of [...sessions, session(bob, "bob's")]) expect(await store.createSession(each)).toBe(true);
        for (const link of ["one", "two"]) expect(await store.addPasswordReset(ann, reset(link), at(0))).toBe(true);
        await store.addPasswordReset(bob, reset("bob's"), at(0));
        expect(await store.findPasswordReset(hashSecret("one"), at(0))).toEqual({
          userId: ann,
          username: "ann@example.com",
        });
        expect(await store.findPasswordReset(hashSecret("one"), at(hourMs))).toBeUndefined();
        expect(await store.resetPassword(hashSecret("one"), change, at(hourMs))).toBeUndefined();
        expect(await store.resetPassword(hashSecret("none"), change, at(0))).toBeUndefined();
        const ended = await store.resetPassword(hashSecret("one"), change, at(0));
        expect(ended?.toSorted()).toEqual(sessions.map(({ id }) => id).toSorted());
        expect((await store.listSessionsEndedSince(new Date(0))).toSorted()).toEqual(ended?.toSorted());
        expect(await passwordOf(ann)).toBe("new");
        expect(await passwordOf(bob)).toBe("hash");
        for (const link of ["one", "two"]) {
          expect(await store.resetPassword(hashSecret(link), another(), at(0))).toBeUndefined();
        }
        expect(await rotate("ann's one", "next", at(0))).toEqual({ outcome: "bad" });
        expect(await rotate("bob's", "next", at(0))).toMatchObject({ outcome: "refreshed" });
        expect((await takeMails(at(0))).toSorted()).toEqual(["changed", "reset", "reset", "reset"]);
        expect(await store.resetPassword(hashSecret("bob's"), another(), at(0))).toHaveLength(1);
      });

      test("of two uses of a link at once, one sets the password", async () => {
        const ann = await createUser();
        await store.addPasswordReset(ann, reset("one"), at(0));
        const outcomes = await Promise.all(
          ["ann's", "eve's"].map((passwordHash) =>
            store.resetPassword(hashSecret("one"), { passwordHash, noticeMail: mail("changed"), events: [] }, at(0)),
          ),
        );
        expect(outcomes.filter((outcome) => outcome !== undefined)).toHaveLength(1);
      });

      test("only a verified user gets a link", async () => {
        const unverified = registration("eve@example.com");
        await store.registerUser(unverified);
        expect(await store.addPasswordReset(unverified.id, reset("eve's"), at(0))).toBe(false);
        expect(await store.addPasswordReset(newId(), reset("nobody's"), at(0))).toBe(false);
        expect(await store.addPasswordReset(await createUser(), reset("ann's"), at(0))).toBe(true);
      });

      test("a change needs the current password, keeps its session, and ends links and other sessions", async () => {
        const ann = await createUser();
        await takeMails(at(0));
        const [mine, other] = [session(ann, "mine"), session(ann, "other")];
        for (const each of [mine, other]) await store.createSession(each);
        await store.addPasswordReset(ann, reset("one"), at(0));
        const user = { id: ann, currentHash: "hash", sessionId: mine.id };
        expect(await store.changePassword({ ...user, currentHash: "wrong" }, another(), at(0))).toBeUndefined();
        expect(await store.changePassword(user, change, at(0))).toEqual([other.id]);
        expect(await store.changePassword(user, another(), at(0))).toBeUndefined();
        expect(await store.resetPassword(hashSecret("one"), another(), at(0))).toBeUndefined();
        expect(await rotate("mine", "next", at(0))).toMatchObject({ outcome: "refreshed" });
        expect(await rotate("other", "next", at(0))).toEqual({ outcome: "bad" });
        expect((await takeMails(at(0))).toSorted()).toEqual(["changed", "reset"]);
      });

      test("a session isn't started with a password that was replaced meanwhile, nor outlives the change", async () => {
        const ann = await createUser();
        const started: NewSession[] = [];
        const starting = Array.from({ length: 10 }, async (_, i) => {
          const next = session(ann, `token ${i}`);
          if (await store.createSession(next)) started.push(next);
        });
        const user = { id: ann, currentHash: "hash", sessionId: newId() };
        const [ended] = await Promise.all([store.changePassword(user, change, at(0)), ...starting]);
        expect(ended?.toSorted()).toEqual(started.map(({ id }) => id).toSorted());
        expect(await store.createSession(session(ann, "late"))).toBe(false);
        expect(await store.createSession(session(ann, "new", { passwordHash: "new" }))).toBe(true);
      });
    });

    describe("sessions", () => {
      test("a refresh token is exchanged for its successor", async () => {
        const userId = await createUser();
        const { id: sessionId } = await startSession(userId, "one");
        expect(await store.findSessionOf(hashSecret("one"))).toEqual({ sessionId, userId });
        expect(await rotate("one", "two", at(1000))).toEqual({
          outcome: "refreshed",
          sessionId,
          userId,
          operator: false,
          secondFactor: false,
          refreshTokenExpiresAt: at(1000 + refreshTokenSeconds * 1000),
        });
        expect(await store.findSessionOf(hashSecret("two"))).toEqual({ sessionId, userId });
        expect(await rotate("two", "three", at(2000))).toMatchObject({ outcome: "refreshed" });
      });

      test("an unknown or expired token is bad", async () => {
        await startSession(await createUser(), "one");
        expect(await rotate("none", "two", at(0))).toEqual({ outcome: "bad" });
        expect(await rotate("one", "two", at(refreshTokenSeconds * 1000))).toEqual({ outcome: "bad" });
        expect(await store.findSessionOf(hashSecret("none"))).toBeUndefined();
      });

      test("a retry within the grace period gets the same successor, even two at once", async () => {
        await startSession(await createUser(), "one");
        const [first, second] = await Promise.all([rotate("one", "two", at(0)), rotate("one", "two", at(0))]);
        expect(first).toMatchObject({ outcome: "refreshed" });
        expect(second).toEqual(first);
        expect(await rotate("one", "two", at(10_000))).toEqual(first);
        expect(await store.listSessionsEndedSince(new Date(0))).toEqual([]);
      });

      test("a token used again after the grace period ends its session and every token of it", async () => {
        const userId = await createUser();
        const { id: sessionId } = await startSession(userId, "one");
        await startSession(userId, "of another session");
        await rotate("one", "two", at(0));
        expect(await rotate("one", "two", at(10_001))).toEqual({ outcome: "reused", sessionId });
        expect(await rotate("two", "three", at(10_002))).toEqual({ outcome: "bad" });
        expect(await store.listSessionsEndedSince(at(10_000))).toEqual([sessionId]);
        expect(await store.listSessionsEndedSince(at(10_001))).toEqual([]);
        expect(await rotate("of another session", "x", at(10_002))).toMatchObject({ outcome: "refreshed" });
      });

      test("a token whose successor was used is no retry, however soon it comes", async () => {
        const { id: sessionId } = await startSession(await createUser(), "one");
        await rotate("one", "two", at(0));
        await rotate("two", "three", at(1));
        expect(await rotate("one", "two", at(2))).toEqual({ outcome: "reused", sessionId });
        expect(await rotate("three", "four", at(3))).toEqual({ outcome: "bad" });
      });

      test("a session ends for good when its time is up, however often it was refreshed", async () => {
        const expiresAt = at(60_000);
        await startSession(await createUser(), "one", { expiresAt });
        expect(await rotate("one", "two", at(59_000))).toMatchObject({ refreshTokenExpiresAt: expiresAt });
        expect(await rotate("two", "three", expiresAt)).toEqual({ outcome: "bad" });
      });

      test("any token of a session ends it, once", async () => {
        const { id } = await startSession(await createUser(), "one");
        await rotate("one", "two", at(0));
        expect(await store.endSessionOf(hashSecret("none"), at(0), [])).toBeUndefined();
        expect(await store.endSessionOf(hashSecret("one"), at(1), [])).toBe(id);
        expect(await store.endSessionOf(hashSecret("two"), at(2), [])).toBeUndefined();
        expect(await rotate("two", "three", at(2))).toEqual({ outcome: "bad" });
        expect(await store.listSessionsEndedSince(at(0))).toEqual([id]);
      });
    });

    describe("API tokens", () => {
      test("a token is found by its hash, with whether its user is an operator", async () => {
        const userId = await createUser();
        const { tokenHash, ...token } = apiToken(userId, "t", {
          workspaceId: newId(),
          role: Role.ADMIN,
          expiresAt: at(1),
        });
        await store.createApiToken({ ...token, tokenHash }, 0, undefined, []);
        expect(await store.findApiToken(tokenHash)).toEqual({
          ...token,
          lastUsedAt: undefined,
          operator: false,
          secondFactor: false,
        });
        expect(await store.findApiToken(hashSecret("other"))).toBeUndefined();
      });

      test("an idempotency record is stored with the token, and only the first", async () => {
        const userId = await createUser();
        const record: IdempotencyRecord = { id: "record", sealed: new Uint8Array([1]) };
        await store.createApiToken(apiToken(userId, "first"), 0, record, []);
        await expect(store.createApiToken(apiToken(userId, "second"), 0, record, [])).rejects.toThrow();
        expect(await store.findApiToken(hashSecret("second"))).toBeUndefined();
      });

      test("a user has no more tokens than they may, expired ones included; a revocation frees a place at once", async () => {
        const [ann, bob] = [await createUser(), await createUser("bob@example.com")];
        const [first, second, third] = ["first", "second", "third"].map((token) => apiToken(ann, token));
        if (!first || !second || !third) throw new Error("three tokens were made");
        const record = { id: newId(), sealed: new Uint8Array([1]) };
        expect(await store.createApiToken({ ...first, expiresAt: at(-1) }, 2, undefined, [])).toBe("done");
        expect(await store.createApiToken(second, 2, undefined, [])).toBe("done");
        expect(await store.createApiToken(third, 2, record, [])).toBe("too_many");
        expect(await store.findApiToken(third.tokenHash)).toBeUndefined();
        expect(await store.createApiToken(apiToken(bob, "bob's"), 2, undefined, [])).toBe("done");
        await store.revokeApiToken(ann, first.id, [], undefined);
        expect(await store.createApiToken(third, 2, record, [])).toBe("done");
        expect(await store.createApiToken(apiToken(ann, "fourth"), 2, undefined, [])).toBe("too_many");
        expect(await store.createApiToken(apiToken(ann, "fifth"), 0, undefined, [])).toBe("done");
      });

      test("of many tokens that are created at once for the last place, one is", async () => {
        const userId = await createUser();
        await store.createApiToken(apiToken(userId, "first"), 2, undefined, []);
        const outcomes = await Promise.all(
          [1, 2, 3, 4, 5].map((i) => store.createApiToken(apiToken(userId, `${i}`), 2, undefined, [])),
        );
        expect(outcomes.sort()).toEqual(["done", "too_many", "too_many", "too_many", "too_many"]);
        expect(await store.listApiTokens(userId, 10, undefined)).toHaveLength(2);
      });

      test("tokens are listed newest first, page by page, each user's own", async () => {
        const ann = await createUser("ann@example.com");
        const bob = await createUser("bob@example.com");
        const created = [0, 1, 1, 2].map((ms, i) => apiToken(ann, `${i}`, { createdAt: at(ms) }));
        for (const token of created) await store.createApiToken(token, 0, undefined, []);
        await store.createApiToken(apiToken(bob, "bob's"), 0, undefined, []);

        const newestFirst = created.map(({ id }) => id).toReversed();
        const first = await store.listApiTokens(ann, 2, undefined);
        const rest = await store.listApiTokens(ann, 10, first[1]);
        expect([...first, ...rest].map(({ id }) => id)).toEqual(newestFirst);
      });

      test("only its owner revokes a token, once, with an event", async () => {
        const ann = await createUser("ann@example.com");
        const bob = await createUser("bob@example.com");
        const token = apiToken(ann, "t");
        await store.createApiToken(token, 0, undefined, []);
        expect(await store.revokeApiToken(bob, token.id, [event("revoked")], undefined)).toBe(false);
        expect(await store.revokeApiToken(ann, token.id, [event("revoked")], undefined)).toBe(true);
        expect(await store.revokeApiToken(ann, token.id, [event("revoked")], undefined)).toBe(false);
        expect(await store.findApiToken(token.tokenHash)).toBeUndefined();
        expect(await store.listApiTokens(ann, 10, undefined)).toEqual([]);
        expect((await subjects()).filter((subject) => subject === "revoked")).toHaveLength(1);
      });

      test("an idempotency record is stored with the revocation, and only with one", async () => {
        const ann = await createUser("ann@example.com");
        const token = apiToken(ann, "t");
        await store.createApiToken(token, 0, undefined, []);
        const record = { id: "record", sealed: new Uint8Array([1]) };
        expect(await store.revokeApiToken(ann, newId(), [], record)).toBe(false);
        expect(await store.idempotency.find("record")).toBeUndefined();
        expect(await store.revokeApiToken(ann, token.id, [], record)).toBe(true);
        expect(await store.idempotency.find("record")).toEqual(record);
      });

      test("the time of the last use never goes back", async () => {
        const token = apiToken(await createUser(), "t");
        await store.createApiToken(token, 0, undefined, []);
        await store.noteApiTokenUses([{ id: token.id, usedAt: at(120_000) }]);
        await store.noteApiTokenUses([{ id: token.id, usedAt: at(60_000) }]);
        expect((await store.findApiToken(token.tokenHash))?.lastUsedAt).toEqual(at(120_000));
      });
    });

    describe("keys", () => {
      const key = (use: "session" | "refresh", createdAt: Date) => ({
        id: newId(),
        use,
        createdAt,
        publicJwk: "{}",
        sealed: new Uint8Array([1, 2]),
      });

      test("of several replicas that make a key at once, one wins", async () => {
        const added = await Promise.all([1, 2, 3].map((ms) => store.addKey(key("session", at(ms)), at(0))));
        expect(added.filter(Boolean)).toHaveLength(1);
        expect(await store.addKey(key("refresh", at(1)), new Date(0))).toBe(true);
        expect(await store.listKeys()).toHaveLength(2);
      });

      test("keys are listed newest first and removed by id", async () => {
        const older = key("session", at(0));
        const newer = key("session", at(dayMs));
        await store.addKey(older, new Date(0));
        await store.addKey(newer, at(0));
        expect(await store.listKeys()).toEqual([newer, older]);
        await store.removeKeys([older.id]);
        expect(await store.listKeys()).toEqual([newer]);
      });

      test("all keys are replaced together with the end of every session", async () => {
        await store.addKey(key("session", at(0)), new Date(0));
        await store.addKey(key("refresh", at(0)), new Date(0));
        const userId = await createUser();
        await store.createSession(session(userId, "a"));
        const fresh = [key("session", at(1)), key("refresh", at(2))];
        await store.replaceKeys(fresh, at(-dayMs));
        expect(await store.listKeys()).toEqual(fresh.toReversed());
        expect(await store.listSessions(userId, 10, undefined, at(0))).toEqual([]);
        expect(await rotate("a", "b", at(1))).toEqual({ outcome: "bad" });
        expect(await store.listSessionsEndedSince(at(-hourMs))).toEqual([]);
      });
    });

    describe("mails", () => {
      test("a mail that was taken is due again when its lease is over, until it is finished", async () => {
        await store.registerUser(registration("ann@example.com"));
        expect(await store.takeDueMails(at(-1), at(0), 10)).toEqual([]);
        const [taken] = await store.takeDueMails(at(0), at(1000), 10);
        expect(taken?.attempts).toBe(0);
        expect(await store.takeDueMails(at(999), at(2000), 10)).toEqual([]);
        expect(await store.takeDueMails(at(1000), at(2000), 10)).toMatchObject([{ attempts: 1 }]);
        await store.postponeMail(taken?.id ?? "", at(5000));
        expect(await store.takeDueMails(at(4999), at(9000), 10)).toEqual([]);
        expect(await store.takeDueMails(at(5000), at(9000), 10)).toMatchObject([{ attempts: 2 }]);
        await store.finishMail(taken?.id ?? "");
        expect(await store.takeDueMails(at(dayMs), at(dayMs), 10)).toEqual([]);
      });
    });

    describe("requests drawn from a shared limit", () => {
      const key = new Uint8Array(32).fill(7);

      test("are granted up to the limit, and again in the next window", async () => {
        expect(await store.drawRequests({ key, limit: 10, wanted: 4 }, at(0))).toEqual({
          granted: 4,
          remaining: 6,
          endsAt: at(60_000),
        });
        expect(await store.drawRequests({ key, limit: 10, wanted: 8 }, at(59_999))).toMatchObject({
          granted: 6,
          remaining: 0,
          endsAt: at(60_000),
        });
        expect((await store.drawRequests({ key, limit: 10, wanted: 1 }, at(59_999))).granted).toBe(0);
        expect(await store.drawRequests({ key, limit: 10, wanted: 1 }, at(60_000))).toEqual({
          granted: 1,
          remaining: 9,
          endsAt: at(120_000),
        });
      });

      test("never exceed it when many draw at once", async () => {
        const draws = await Promise.all(
          Array.from({ length: 20 }, () => store.drawRequests({ key, limit: 50, wanted: 4 }, at(0))),
        );
        expect(draws.reduce((sum, { granted }) => sum + granted, 0)).toBe(50);
      });
    });

    describeLimits(() => store);

    describe("slots of a limit that facades share", () => {
      const key = new Uint8Array(32).fill(7);
      const other = new Uint8Array(32).fill(8);
      const hold = async (holder: string, used: number, wanted: number, ms = 0) =>
        (await store.holdSlots(holder, [{ key, limit: 10, used, wanted }], at(ms)))[0];

      test("are held up to the limit, and free for others once they are given back", async () => {
        expect(await hold("a", 0, 4)).toBe(4);
        expect(await hold("b", 0, 8)).toBe(6);
        expect(await hold("c", 0, 1)).toBe(0);
        expect(await hold("a", 1, 2)).toBe(2);
        expect(await hold("c", 0, 5)).toBe(2);
        expect(await hold("b", 0, 0)).toBe(0);
        expect(await hold("c", 0, 20)).toBe(8);
      });

      test("in use are held whatever the limit, and then nobody gets another", async () => {
        expect(await hold("a", 0, 10)).toBe(10);
        expect(await hold("b", 3, 5)).toBe(3);
        expect(await hold("a", 8, 12)).toBe(8);
        expect(await hold("c", 0, 1)).toBe(0);
      });

      test("are free again when their holder has not been heard of for 30 s", async () => {
        await hold("a", 10, 10);
        await hold("b", 0, 5, 29_999);
        expect(await hold("b", 0, 5, 29_999)).toBe(0);
        await hold("a", 4, 4, 29_999);
        expect(await hold("b", 0, 10, 30_000)).toBe(6);
        expect(await hold("b", 0, 10, 60_000)).toBe(10);
      });

      test("of many keys are held at once, each apart", async () => {
        const holds = [
          { key, limit: 2, used: 0, wanted: 3 },
          { key: other, limit: 5, used: 1, wanted: 4 },
        ];
        expect(await store.holdSlots("a", holds, at(0))).toEqual([2, 4]);
        expect(await store.holdSlots("b", holds.toReversed(), at(0))).toEqual([1, 0]);
        expect(await store.holdSlots("a", [], at(0))).toEqual([]);
      });

      test("never exceed it when many hold at once", async () => {
        const held = await Promise.all(Array.from({ length: 20 }, (_, index) => hold(`facade ${index}`, 0, 3)));
        expect(held.reduce<number>((sum, each = 0) => sum + each, 0)).toBe(10);
      });
    });

    test("what has been kept long enough goes, the rest stays", { timeout: 200_000 }, async () => {
      const now = new Date();
      const userId = await createUser();
      const sessionFrom = async (token: string, refreshTokenExpiresAt: Date) =>
        (await startSession(userId, token, { createdAt: addMs(refreshTokenExpiresAt, -hourMs), refreshTokenExpiresAt }))
          .id;
      for (const token of ["old", "older", "oldest"]) await sessionFrom(token, addMs(now, -dayMs - 1000));
      await sessionFrom("expired lately", addMs(now, -dayMs + hourMs));
      await sessionFrom("ended long ago", addMs(now, dayMs));
      await store.endSessionOf(hashSecret("ended long ago"), addMs(now, -dayMs - 1000), []);
      const ended = await sessionFrom("ended lately", addMs(now, dayMs));
      await store.endSessionOf(hashSecret("ended lately"), addMs(now, -dayMs + hourMs), []);
      const apiTokens = {
        old: apiToken(userId, "old", { expiresAt: addMs(now, -30 * dayMs - 1000) }),
        expired: apiToken(userId, "expired", { expiresAt: addMs(now, -29 * dayMs) }),
        lasting: apiToken(userId, "lasting"),
      };
      for (const token of Object.values(apiTokens)) await store.createApiToken(token, 0, undefined, []);

      const remaining = async () => ({
        refreshTokens: await Promise.all(
          ["old", "older", "oldest", "expired lately"].map((token) =>
            store.findSessionOf(hashSecret(token)).then(Boolean),
          ),
        ),
        ended: await store.listSessionsEndedSince(new Date(0)),
        apiTokens: (await store.listApiTokens(userId, 10, undefined)).map(({ id }) => id).toSorted(),
      });
      // MongoDB looks for them once a minute.
      await vi.waitFor(
        async () => {
          while ((await store.sweep(now, 2)) > 0);
          expect(await remaining()).toEqual({
            refreshTokens: [false, false, false, true],
            ended: [ended],
            apiTokens: [apiTokens.expired.id, apiTokens.lasting.id].toSorted(),
          });
        },
        { timeout: 150_000, interval: 200 },
      );
      expect(await store.findUsers([userId], [])).toHaveLength(1);
    });

    async function startSession(userId: string, token: string, more?: Partial<NewSession>): Promise<NewSession> {
      const started = session(userId, token, more);
      await store.createSession(started);
      return started;
    }
  });
}
