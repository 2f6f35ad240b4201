import { newId } from "@sandgate/kit/base/ids";
import { addMs, dayMs, hourMs, minuteMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { hashSecret } from "../domain/tokens.ts";
import { at, event, firstOperator, mail, rotate, subjectsOf, takeMails } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

const now = at(0);
const expiresAt = addMs(now, 10 * minuteMs);
const sealed = (text: string) => new Uint8Array(Buffer.from(text));

/** What every adapter of `SecondFactors` and `OtpAttempts` does. `open` returns an empty store. */
export function describeSecondFactors(open: () => Promise<IdentityStore>): void {
  describe("second factors", () => {
    let store: IdentityStore;
    beforeEach(async () => {
      store = await open();
    });
    afterEach(() => store.close());

    async function createUser(): Promise<string> {
      const id = newId();
      const name = { username: `${id}@example.com`, usernameKey: `${id}@example.com` };
      const identity = { issuer: "https://issuer.test", subject: id, name };
      await store.singleSignOn.resolveUser(identity, { created: { id, events: [] }, holder: undefined }, now);
      return id;
    }

    async function startSession(userId: string, token: string, secondFactor?: boolean): Promise<string> {
      const id = newId();
      await store.sessions.create({
        id,
        userId,
        passwordHash: undefined,
        ...(secondFactor !== undefined && { secondFactor }),
        client: { address: "", userAgent: "" },
        createdAt: now,
        expiresAt: addMs(now, dayMs),
        refreshTokenHash: hashSecret(token),
        refreshTokenExpiresAt: addMs(now, hourMs),
        events: [],
      });
      return id;
    }

    const pending = (userId: string, secret = "secret") => ({ id: newId(), userId, sealed: sealed(secret), expiresAt });
    const codes = ["one", "two", "three"];
    const step = 100;

    async function enable(userId: string): Promise<string> {
      const factor = pending(userId);
      await store.secondFactors.add(factor);
      const recoveryCodeHashes = codes.map(hashSecret);
      const confirmed = { id: factor.id, userId, step, recoveryCodeHashes, noticeMail: mail("enabled"), events: [] };
      expect(await store.secondFactors.enable(confirmed, now)).toBe(true);
      return factor.id;
    }

    const refresh = (token: string, successor: string) => rotate(store, token, successor, now);

    test("one is enabled once it is confirmed, in time, and only the last that was added", async () => {
      const ann = await createUser();
      const [first, second] = [pending(ann, "first"), pending(ann, "second")];
      const confirm = (id: string, at = now) =>
        store.secondFactors.enable(
          {
            id,
            userId: ann,
            step,
            recoveryCodeHashes: codes.map(hashSecret),
            noticeMail: mail("enabled"),
            events: [event("enabled")],
          },
          at,
        );
      expect(await store.secondFactors.add(first)).toBe(true);
      expect(await store.secondFactors.add(second)).toBe(true);
      expect(await store.secondFactors.findPending(ann, now)).toEqual({ id: second.id, sealed: sealed("second") });
      expect(await store.secondFactors.findPending(ann, expiresAt)).toBeUndefined();
      expect(await confirm(first.id)).toBe(false);
      expect(await confirm(second.id, expiresAt)).toBe(false);
      expect(await store.secondFactors.find(ann)).toBeUndefined();
      expect(await store.otpAttempts.begin(ann, now)).toEqual({ outcome: "none" });
      const confirmed = await Promise.all([1, 2, 3].map(() => confirm(second.id)));
      expect(confirmed.filter(Boolean)).toHaveLength(1);
      expect(await store.secondFactors.find(ann)).toEqual({ recoveryCodesLeft: 3 });
      expect(await takeMails(store, now)).toEqual(["enabled"]);
      expect(await subjectsOf(store)).toEqual(["enabled"]);
      expect(await store.secondFactors.add(pending(ann))).toBe(false);
      expect(await store.secondFactors.findPending(ann, now)).toBeUndefined();
    });

    test("a time step is used once with those before it, also by several at once", async () => {
      const id = await enable(await createUser());
      expect(await store.otpAttempts.acceptOtp(id, step)).toBe(false);
      const accepted = await Promise.all([1, 2, 3, 4].map(() => store.otpAttempts.acceptOtp(id, step + 1)));
      expect(accepted.filter(Boolean)).toHaveLength(1);
      expect(await store.otpAttempts.acceptOtp(id, step - 1)).toBe(false);
      expect(await store.otpAttempts.acceptOtp(id, step + 2)).toBe(true);
      expect(await store.otpAttempts.acceptOtp(newId(), step + 3)).toBe(false);
    });

    test("a recovery code is used once, also by several at once, and tells the user", async () => {
      const ann = await createUser();
      const id = await enable(ann);
      await takeMails(store, now);
      const use = (code: string, factorId = id) =>
        store.otpAttempts.acceptRecoveryCode(
          {
            userId: ann,
            factorId,
            codeHash: hashSecret(code),
            noticeMail: mail(`used ${code}`),
            events: [event(`used ${code}`)],
          },
          now,
        );
      expect(await use("four")).toBe(false);
      expect(await use("one", newId())).toBe(false);
      const used = await Promise.all([1, 2, 3, 4].map(() => use("one")));
      expect(used.filter(Boolean)).toHaveLength(1);
      expect(await takeMails(store, now)).toEqual(["used one"]);
      expect(await subjectsOf(store)).toEqual(["used one"]);
      expect(await store.secondFactors.find(ann)).toEqual({ recoveryCodesLeft: 2 });
      expect(await store.secondFactors.replaceRecoveryCodes(ann, [hashSecret("new")], [event("replaced")])).toBe(true);
      expect(await use("two")).toBe(false);
      expect(await use("new")).toBe(true);
      expect(
        await store.secondFactors.replaceRecoveryCodes(await createUser(), [hashSecret("new")], [event("none")]),
      ).toBe(false);
      expect(await subjectsOf(store)).toEqual(["used one", "replaced", "used new"]);
    });

    test("after five attempts without a right code they are refused, for longer each time, until one is right", async () => {
      const ann = await createUser();
      const id = await enable(ann);
      const attempt = async (at: Date) => {
        const found = await store.otpAttempts.begin(ann, at);
        return found.outcome === "refused" ? (found.until.getTime() - at.getTime()) / 1000 : found.outcome;
      };
      for (let i = 0; i < 4; i++) expect(await attempt(now)).toBe("counted");
      expect(await store.otpAttempts.begin(ann, now)).toEqual({
        outcome: "counted",
        factor: { id, sealed: sealed("secret") },
      });
      expect(await attempt(now)).toBe(30);
      expect(await attempt(addMs(now, 29_000))).toBe(1);
      expect(await attempt(addMs(now, 30_000))).toBe("counted");
      expect(await attempt(addMs(now, 30_000))).toBe(60);
      await store.otpAttempts.acceptOtp(id, step + 1);
      for (let i = 0; i < 5; i++) expect(await attempt(now)).toBe("counted");
      expect(await attempt(now)).toBe(30);
      const used = { userId: ann, factorId: id, codeHash: hashSecret("one"), noticeMail: mail("used"), events: [] };
      await store.otpAttempts.acceptRecoveryCode(used, now);
      expect(await attempt(now)).toBe("counted");
      // Nobody else's count.
      const bob = await createUser();
      await enable(bob);
      expect((await store.otpAttempts.begin(bob, now)).outcome).toBe("counted");
    });

    test("of many attempts at once no more are looked at than of those one after another", async () => {
      const ann = await createUser();
      await enable(ann);
      const attempts = await Promise.all(Array.from({ length: 20 }, () => store.otpAttempts.begin(ann, now)));
      expect(attempts.filter(({ outcome }) => outcome === "counted")).toHaveLength(5);
    });

    test("a session keeps through refreshes that it was signed in with one, until that is removed", async () => {
      const ann = await createUser();
      await enable(ann);
      await startSession(ann, "with", true);
      await startSession(ann, "without");
      expect(await refresh("with", "with 2")).toMatchObject({ outcome: "refreshed", secondFactor: true });
      expect(await refresh("with 2", "with 3")).toMatchObject({ secondFactor: true });
      expect(await refresh("without", "without 2")).toMatchObject({ secondFactor: false });
      await takeMails(store, now);
      const removal = { noticeMail: mail("removed"), endSessions: false, events: [event("removed")] };
      expect(await store.secondFactors.remove(ann, removal, now)).toEqual([]);
      expect(await store.secondFactors.remove(ann, removal, now)).toBeUndefined();
      expect(await takeMails(store, now)).toEqual(["removed"]);
      expect(await subjectsOf(store)).toEqual(["removed"]);
      expect(await refresh("with 3", "with 4")).toMatchObject({ outcome: "refreshed", secondFactor: false });
      expect(await store.secondFactors.find(ann)).toBeUndefined();
      expect(await store.secondFactors.add(pending(ann))).toBe(true);
    });

    test("a removal ends all sessions if it shall, and nobody else's", async () => {
      const [ann, bob] = [await createUser(), await createUser()];
      for (const each of [ann, bob]) await enable(each);
      const [anns, bobs] = [await startSession(ann, "ann's", true), await startSession(bob, "bob's", true)];
      const removal = { noticeMail: mail("removed"), endSessions: true, events: [] };
      expect(await store.secondFactors.remove(ann, removal, now)).toEqual([anns]);
      expect(await refresh("ann's", "next")).toEqual({ outcome: "bad" });
      expect(await refresh("bob's", "next")).toMatchObject({ sessionId: bobs, secondFactor: true });
      expect(await store.secondFactors.find(bob)).toEqual({ recoveryCodesLeft: 3 });
    });

    test("one of a deleted user is gone", async () => {
      const ann = await createUser();
      await enable(ann);
      await store.users.delete(ann, [], now);
      expect(await store.secondFactors.find(ann)).toBeUndefined();
      expect(await store.otpAttempts.begin(ann, now)).toEqual({ outcome: "none" });
    });

    test("an operator's API token is found with whether its user has one", async () => {
      const { user: operator, events } = firstOperator("root@localhost");
      await store.users.createFirstOperator({ user: operator, events });
      const tokenHash = hashSecret("token");
      await store.apiTokens.create(
        {
          id: newId(),
          userId: operator.id,
          tokenHash,
          description: "ci",
          hint: "sgt_",
          workspaceId: undefined,
          role: 0,
          expiresAt: undefined,
          createdAt: now,
        },
        0,
        undefined,
        [],
      );
      await store.secondFactors.add(pending(operator.id));
      expect(await store.apiTokens.find(tokenHash)).toMatchObject({ operator: true, secondFactor: false });
      await enable(operator.id);
      expect(await store.apiTokens.find(tokenHash)).toMatchObject({ operator: true, secondFactor: true });
    });

    test("when a session was signed in is known of one's own that lives", async () => {
      const [ann, bob] = [await createUser(), await createUser()];
      const id = await startSession(ann, "token");
      await refresh("token", "next");
      expect(await store.sessions.findStart(ann, id)).toEqual(now);
      expect(await store.sessions.findStart(bob, id)).toBeUndefined();
      await store.sessions.end(ann, id, now, []);
      expect(await store.sessions.findStart(ann, id)).toBeUndefined();
    });
  });
}
