import { newId } from "@sandgate/kit/base/ids";
import { addMs } from "@sandgate/kit/base/time";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { hashSecret } from "../domain/tokens.ts";
import {
  at,
  createProviderUser,
  enableSecondFactor,
  event,
  mail,
  sealedSecret,
  secondFactorStep,
  subjectsOf,
  takeMails,
} from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

const now = at(0);
const home = { fromOwnNetwork: true };
const elsewhere = { fromOwnNetwork: false };

/** What every adapter of `OtpAttempts` does. `open` returns an empty store. */
export function describeOtpAttempts(open: () => Promise<IdentityStore>): void {
  describe("attempts at the codes of second factors", () => {
    let store: IdentityStore;

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("a time step is used once with those before it, also by several at once", async () => {
      const id = await enableSecondFactor(store, await createProviderUser(store));
      expect(await store.otpAttempts.acceptOtp(id, secondFactorStep, home)).toBe(false);
      const accepted = await Promise.all(
        [1, 2, 3, 4].map(() => store.otpAttempts.acceptOtp(id, secondFactorStep + 1, home)),
      );
      expect(accepted.filter(Boolean)).toHaveLength(1);
      expect(await store.otpAttempts.acceptOtp(id, secondFactorStep - 1, home)).toBe(false);
      expect(await store.otpAttempts.acceptOtp(id, secondFactorStep + 2, home)).toBe(true);
      expect(await store.otpAttempts.acceptOtp(newId(), secondFactorStep + 3, home)).toBe(false);
    });

    test("a recovery code is used once, also by several at once, and notifies the user", async () => {
      const ann = await createProviderUser(store);
      const id = await enableSecondFactor(store, ann);
      await takeMails(store, now);
      const use = (code: string, factorId = id) =>
        store.otpAttempts.acceptRecoveryCode(
          {
            ...home,
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
        await store.secondFactors.replaceRecoveryCodes(
          await createProviderUser(store),
          [hashSecret("new")],
          [event("none")],
        ),
      ).toBe(false);
      expect(await subjectsOf(store)).toEqual(["used one", "replaced", "used new"]);
    });

    test("after five attempts without a right code they are refused, for longer each time, until one is right", async () => {
      const ann = await createProviderUser(store);
      const id = await enableSecondFactor(store, ann);
      const attempt = async (at: Date, origin = home) => {
        const found = await store.otpAttempts.begin(ann, origin, at);
        return found.outcome === "refused" ? (found.until.getTime() - at.getTime()) / 1000 : found.outcome;
      };
      for (let i = 0; i < 4; i++) expect(await attempt(now)).toBe("counted");
      expect(await store.otpAttempts.begin(ann, home, now)).toEqual({
        outcome: "counted",
        factor: { id, sealed: sealedSecret("secret") },
      });
      expect(await attempt(now)).toBe(30);
      expect(await attempt(addMs(now, 29_000))).toBe(1);
      expect(await attempt(addMs(now, 30_000))).toBe("counted");
      expect(await attempt(addMs(now, 30_000))).toBe(60);
      await store.otpAttempts.acceptOtp(id, secondFactorStep + 1, home);
      for (let i = 0; i < 5; i++) expect(await attempt(now)).toBe("counted");
      expect(await attempt(now)).toBe(30);
      const used = {
        ...home,
        userId: ann,
        factorId: id,
        codeHash: hashSecret("one"),
        noticeMail: mail("used"),
        events: [],
      };
      await store.otpAttempts.acceptRecoveryCode(used, now);
      expect(await attempt(now)).toBe("counted");
      // Nobody else's count.
      const bob = await createProviderUser(store);
      await enableSecondFactor(store, bob);
      expect((await store.otpAttempts.begin(bob, home, now)).outcome).toBe("counted");
    });

    test("attempts from elsewhere neither close the account's own networks nor open again when those are right", async () => {
      const ann = await createProviderUser(store);
      const id = await enableSecondFactor(store, ann);
      const outcome = async (origin: typeof home) => (await store.otpAttempts.begin(ann, origin, now)).outcome;
      for (let i = 0; i < 5; i++) expect(await outcome(elsewhere)).toBe("counted");
      expect(await outcome(elsewhere)).toBe("refused");
      expect(await outcome(home)).toBe("counted");
      expect(await store.otpAttempts.acceptOtp(id, secondFactorStep + 1, home)).toBe(true);
      expect(await outcome(elsewhere)).toBe("refused");
      for (let i = 0; i < 5; i++) expect(await outcome(home)).toBe("counted");
      expect(await outcome(home)).toBe("refused");
      const code = { codeHash: hashSecret("one"), noticeMail: mail("used"), events: [] };
      expect(
        await store.otpAttempts.acceptRecoveryCode({ ...elsewhere, ...code, userId: ann, factorId: id }, now),
      ).toBe(true);
      expect(await outcome(elsewhere)).toBe("counted");
      expect(await outcome(home)).toBe("refused");
    });

    test("of many attempts at once no more are looked at than of those one after another", async () => {
      const ann = await createProviderUser(store);
      await enableSecondFactor(store, ann);
      const attempts = await Promise.all(Array.from({ length: 20 }, () => store.otpAttempts.begin(ann, home, now)));
      expect(attempts.filter(({ outcome }) => outcome === "counted")).toHaveLength(5);
    });
  });
}
