import { newId } from "@sandgate/kit/base/ids";
import { addMs, dayMs, hourMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { hashSecret } from "../domain/tokens.ts";
import { describeApiTokens } from "./api-tokens.contract.ts";
import { describeKeys } from "./keys.contract.ts";
import { describeKnownNetworks } from "./known-networks.contract.ts";
import { describeMails } from "./mails.contract.ts";
import { describeOtpAttempts } from "./otp-attempts.contract.ts";
import { describePasswords } from "./passwords.contract.ts";
import { describeRateCounters } from "./rate-counters.contract.ts";
import { describeRegistrations } from "./registrations.contract.ts";
import { describeSecondFactors } from "./second-factors.contract.ts";
import { describeSessions } from "./sessions.contract.ts";
import { describeSingleSignOn } from "./single-sign-on.contract.ts";
import { describeSlotLeases } from "./slot-leases.contract.ts";
import {
  apiToken,
  at,
  createUser,
  event,
  mail,
  registration,
  rotate,
  session,
  startSession,
  subjectsOf,
} from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";
import { describeUsers } from "./users.contract.ts";

/** What every store of identity does, whatever the database. `open` returns an empty one. */
export function describeIdentityStore(name: string, open: () => Promise<IdentityStore>): void {
  describe(`identity store on ${name}`, () => {
    describeUsers(open);
    describeRegistrations(open);
    describePasswords(open);
    describeSessions(open);
    describeApiTokens(open);
    describeKeys(open);
    describeMails(open);
    describeSecondFactors(open);
    describeOtpAttempts(open);
    describeSingleSignOn(open);
    describeKnownNetworks(open);
    describeRateCounters(open);
    describeSlotLeases(open);

    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("what somebody did has its event in the outbox, and what did not happen has none", async () => {
      const user = registration("ann@example.com", { link: "link" });
      const { id } = user;
      const events = (name: string) => [event(name)];
      await store.registrations.register(user);
      for (const name of ["verified", "not again"]) {
        await store.registrations.verify(hashSecret("link"), "hash", at(0), events(name));
      }
      const [one, two, three] = ["one", "two", "three"].map((token) => session(id, token, { events: events(token) }));
      if (!one || !two || !three) throw new Error("three sessions");
      for (const each of [one, two, three]) await store.sessions.create(each);
      await store.sessions.create(session(id, "no", { passwordHash: "wrong", events: events("not started") }));
      for (const name of ["signed out", "not again"])
        await store.refreshTokens.endSession(hashSecret("one"), at(0), events(name));
      for (const name of ["ended", "not again"]) await store.sessions.end(id, two.id, at(0), events(name));
      for (const name of ["others", "no others"]) await store.sessions.endOthers(id, three.id, at(0), events(name));
      await store.sessions.create(session(id, "four", { events: events("four") }));
      for (const name of ["all others", "no others"]) await store.sessions.endOthers(id, three.id, at(0), events(name));
      await rotate(store, "three", "next", at(0));
      await rotate(store, "next", "after", at(1));
      const reuse = (name: string) => rotate(store, "three", "next", at(dayMs / 48), events(name));
      for (const name of ["reused", "not again"]) await reuse(name);

      const change = { passwordHash: "new", revokesApiTokens: false, noticeMail: mail("changed"), events: [] };
      const currentHash = "hash";
      for (const name of ["changed", "not again"]) {
        const changing = { ...change, noticeMail: mail("changed"), events: events(name) };
        await store.passwords.change({ id, currentHash, sessionId: three.id }, changing, at(0));
      }
      await store.passwords.addReset(
        id,
        { tokenHash: hashSecret("reset"), expiresAt: at(hourMs), mail: mail("reset") },
        at(0),
      );
      for (const name of ["reset", "not again"]) {
        const changing = { ...change, noticeMail: mail("changed"), events: events(name) };
        await store.passwords.reset(hashSecret("reset"), changing, at(0));
      }
      await store.apiTokens.create(apiToken(id, "token"), 1, undefined, events("token"));
      await store.apiTokens.create(apiToken(id, "too many"), 1, undefined, events("no token"));
      await store.users.setDisabled(id, true, at(0), events("disabled"));
      await store.users.setDisabled(newId(), true, at(0), events("nobody"));
      const expected = ["created", "verified", "one", "two", "three", "signed out", "ended", "four", "all others"];
      expect(await subjectsOf(store)).toEqual([...expected, "reused", "changed", "reset", "token", "disabled"]);
    });

    test("what has been kept long enough goes, the others stay", { timeout: 200_000 }, async () => {
      const now = new Date();
      const userId = await createUser(store);
      const sessionFrom = async (token: string, refreshTokenExpiresAt: Date) =>
        (
          await startSession(store, userId, token, {
            createdAt: addMs(refreshTokenExpiresAt, -hourMs),
            refreshTokenExpiresAt,
          })
        ).id;
      for (const token of ["old", "older", "oldest"]) await sessionFrom(token, addMs(now, -dayMs - 1000));
      await sessionFrom("expired lately", addMs(now, -dayMs + hourMs));
      await sessionFrom("ended long ago", addMs(now, dayMs));
      await store.refreshTokens.endSession(hashSecret("ended long ago"), addMs(now, -dayMs - 1000), []);
      const ended = await sessionFrom("ended lately", addMs(now, dayMs));
      await store.refreshTokens.endSession(hashSecret("ended lately"), addMs(now, -dayMs + hourMs), []);
      const apiTokens = {
        old: apiToken(userId, "old", { expiresAt: addMs(now, -30 * dayMs - 1000) }),
        expired: apiToken(userId, "expired", { expiresAt: addMs(now, -29 * dayMs) }),
        lasting: apiToken(userId, "lasting"),
      };
      for (const token of Object.values(apiTokens)) await store.apiTokens.create(token, 0, undefined, []);

      const remaining = async () => ({
        refreshTokens: await Promise.all(
          ["old", "older", "oldest", "expired lately"].map((token) =>
            store.refreshTokens.findSession(hashSecret(token)).then(Boolean),
          ),
        ),
        ended: await store.sessions.listEndedSince(new Date(0)),
        apiTokens: (await store.apiTokens.list(userId, 10, undefined)).map(({ id }) => id).toSorted(),
      });
      // MongoDB looks for them once a minute.
      await vi.waitFor(
        async () => {
          while ((await store.expiry.sweep(now, 2)) > 0);
          expect(await remaining()).toEqual({
            refreshTokens: [false, false, false, true],
            ended: [ended],
            apiTokens: [apiTokens.expired.id, apiTokens.lasting.id].toSorted(),
          });
        },
        { timeout: 150_000, interval: 200 },
      );
      expect(await store.users.find([userId], [])).toHaveLength(1);
    });
  });
}
