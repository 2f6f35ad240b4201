import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { addMs, minuteMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import { type Call, type UserCaller, userOf } from "@sandgate/kit/rpc/context";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import { canonicalRecoveryCode, newOtpSecret, newRecoveryCodes, presentOtpSecret, stepOf } from "../domain/otp.ts";
import type { OtpOrigin, SecondFactor } from "../domain/second-factors.ts";
import { hashSecret } from "../domain/tokens.ts";
import type { User } from "../domain/users.ts";
import {
  signalApiTokenRevoked,
  signalSessionsEnded,
  userRecoveryCodesReplaced,
  userRecoveryCodeUsed,
  userSecondFactorEnabled,
  userSecondFactorRemoved,
} from "../events.ts";
import { composeRecoveryCodeUsed, composeSecondFactorEnabled, composeSecondFactorRemoved } from "../mail/texts.ts";
import type { PasswordHasher } from "../passwords/hasher.ts";
import type { IdentityStore } from "../store/store.ts";
import { confirmCaller, requireRecentSignIn } from "./confirmation.ts";
import type { MailQueue } from "./mail-queue.ts";
import type { SignInAttempts } from "./sign-in-attempts.ts";

/** How long a second factor can be confirmed. */
const pendingMs = 10 * minuteMs;

/** What confirms that the caller is the user: the password, in an account that has one, and a code. */
interface Confirmation {
  password: string | undefined;
  otp: string;
}

/**
 * Second factors of users: codes of an authenticator app, and recovery codes for users who have lost the app. A wrong
 * code throws INVALID_CREDENTIALS with a violation of `otp`; after several in a row, every code throws RATE_LIMITED for
 * a while. Networks that the account has signed in from count apart from all others, so that nobody who has learned the
 * password closes the account to its user.
 */
export interface SecondFactors {
  status(userId: string): Promise<{ enabled: boolean; recoveryCodesLeft: number }>;
  /**
   * Makes a secret, which the caller must confirm. Throws CONFLICT when the caller has a second factor, and what
   * `confirmCaller` and `requireRecentSignIn` throw.
   */
  create(caller: UserCaller, password: string | undefined): Promise<{ secret: string; uri: string }>;
  /**
   * Enables the second factor and returns its recovery codes. Throws CONFLICT when there is none to confirm, and what
   * `requireRecentSignIn` throws.
   */
  confirm(call: Call, otp: string): Promise<string[]>;
  /** Returns new recovery codes, which replace the old ones. Throws CONFLICT when the caller has no second factor. */
  replaceRecoveryCodes(call: Call, confirmation: Confirmation): Promise<string[]>;
  /** Throws CONFLICT when the caller has no second factor. */
  remove(call: Call, confirmation: Confirmation): Promise<void>;
  /**
   * Removes another user's second factor, if there is one, and then ends all sessions of that user. Returns whether
   * there was one. A command on the server's machine has no call. Throws NOT_FOUND.
   */
  removeOf(
    call: Call | undefined,
    who: { id: string } | { usernameKey: string },
  ): Promise<{ user: User; removed: boolean }>;
  /**
   * Checks what a sign-in needs besides the right password. Returns whether the user has a second factor, for which the
   * code was right. Throws INVALID_CREDENTIALS for a code that is missing or wrong.
   */
  check(user: User, otp: string | undefined, call: Call): Promise<boolean>;
}

export function createSecondFactors(o: {
  store: IdentityStore;
  hasher: PasswordHasher;
  keyring: Keyring;
  mails: MailQueue;
  attempts: Pick<SignInAttempts, "isOwnNetwork">;
  bus: EventBus;
  publicUrl: string;
  now: () => Date;
}): SecondFactors {
  const { store, keyring, mails, bus, publicUrl, now } = o;

  const aboutOf = (id: string) => ({ service: "identity", table: "second_factors", record: id });
  const open = ({ id, sealed }: SecondFactor) => keyring.open(sealed, aboutOf(id));
  const hashesOf = (codes: readonly string[]) => codes.flatMap((code) => hashOf(code) ?? []);

  /** False for a user without a second factor. */
  async function useCode(user: User, otp: string, call: Call): Promise<boolean> {
    const origin = { fromOwnNetwork: await o.attempts.isOwnNetwork(user.id, call.clientAddress ?? "") };
    const attempt = await store.otpAttempts.begin(user.id, origin, now());
    switch (attempt.outcome) {
      case "none":
        return false;
      case "refused":
        throw new DomainError("RATE_LIMITED", "Too many wrong codes were entered for this account.", {
          hint: "Wait as long as the Retry-After header says. A code that was already used counts as wrong.",
          retryAfterSeconds: (attempt.until.getTime() - now().getTime()) / 1000,
        });
      case "counted": {
        const { factor } = attempt;
        const step = stepOf(open(factor), otp, now());
        const accepted =
          step === undefined
            ? await useRecoveryCode(user, { factorId: factor.id, ...origin }, otp, call)
            : await store.otpAttempts.acceptOtp(factor.id, step, origin);
        if (!accepted) throw wrongOtp();
        return true;
      }
    }
  }

  async function useRecoveryCode(
    user: User,
    tried: OtpOrigin & { factorId: string },
    otp: string,
    call: Call,
  ): Promise<boolean> {
    const codeHash = hashOf(otp);
    if (!codeHash) return false;
    const noticeMail = mails.seal(composeRecoveryCodeUsed({ to: user.username, publicUrl }));
    const events = [userRecoveryCodeUsed(call, user.id)];
    const used = await store.otpAttempts.acceptRecoveryCode(
      { ...tried, userId: user.id, codeHash, noticeMail, events },
      now(),
    );
    if (used) mails.wake();
    return used;
  }

  /** The caller, once password and code are right. */
  async function confirmWithCode(call: Call, { password, otp }: Confirmation): Promise<User> {
    const user = await confirmCaller(o, userOf(call), password);
    if (!(await useCode(user, otp, call))) throw notEnabled();
    return user;
  }

  async function remove(user: User, endSessions: boolean, call: Call | undefined): Promise<boolean> {
    const noticeMail = mails.seal(composeSecondFactorRemoved({ to: user.username, publicUrl }));
    const events = [userSecondFactorRemoved(call, user.id)];
    const ended = await store.secondFactors.remove(user.id, { noticeMail, endSessions, events }, now());
    if (!ended) return false;
    signalSessionsEnded(bus, ended);
    // The rights of an operator's tokens may depend on it.
    signalApiTokenRevoked(bus, user.id);
    mails.wake();
    return true;
  }

  return {
    async status(userId) {
      const found = await store.secondFactors.find(userId);
      return { enabled: found !== undefined, recoveryCodesLeft: found?.recoveryCodesLeft ?? 0 };
    },

    async create(caller, password) {
      const user = await confirmCaller(o, caller, password);
      await requireRecentSignIn(o, caller);
      const [id, secret] = [newId(), newOtpSecret()];
      const sealed = keyring.seal(secret, aboutOf(id));
      const added = await store.secondFactors.add({ id, userId: user.id, sealed, expiresAt: addMs(now(), pendingMs) });
      if (!added) {
        throw new DomainError("CONFLICT", "You already have a second factor.", {
          hint: "Remove it with DELETE /auth/second-factor before you set up another.",
        });
      }
      return presentOtpSecret(secret, user.username);
    },

    async confirm(call, otp) {
      const { id: userId } = userOf(call);
      const pending = await store.secondFactors.findPending(userId, now());
      const [user] = await store.users.find([userId], []);
      if (!pending || !user) throw notPending();
      await requireRecentSignIn(o, userOf(call));
      const step = stepOf(open(pending), otp, now());
      if (step === undefined) throw wrongOtp();
      const codes = newRecoveryCodes();
      const noticeMail = mails.seal(composeSecondFactorEnabled({ to: user.username, publicUrl }));
      const events = [userSecondFactorEnabled(call, userId)];
      const confirmed = { id: pending.id, userId, step, recoveryCodeHashes: hashesOf(codes), noticeMail, events };
      if (!(await store.secondFactors.enable(confirmed, now()))) throw notPending();
      signalApiTokenRevoked(bus, userId);
      mails.wake();
      return codes;
    },

    async replaceRecoveryCodes(call, confirmation) {
      const { id } = await confirmWithCode(call, confirmation);
      const codes = newRecoveryCodes();
      const events = [userRecoveryCodesReplaced(call, id)];
      if (!(await store.secondFactors.replaceRecoveryCodes(id, hashesOf(codes), events))) throw notEnabled();
      return codes;
    },

    async remove(call, confirmation) {
      const user = await confirmWithCode(call, confirmation);
      if (!(await remove(user, false, call))) throw notEnabled();
    },

    async removeOf(call, who) {
      const found = await store.users.findAccount(who);
      if (!found && "usernameKey" in who) throw new DomainError("NOT_FOUND", "There is no user of this name.");
      if (!found) {
        throw new DomainError("NOT_FOUND", "There is no such user.", {
          hint: "Check the id against GET /admin/users.",
        });
      }
      return { user: found.user, removed: await remove(found.user, true, call) };
    },

    async check(user, otp, call) {
      if (otp !== undefined) return useCode(user, otp, call);
      if (await store.secondFactors.find(user.id)) throw otpNeeded();
      return false;
    },
  };
}

function hashOf(otp: string): Uint8Array | undefined {
  const code = canonicalRecoveryCode(otp);
  return code === undefined ? undefined : hashSecret(code);
}

function otpNeeded(): DomainError {
  return new DomainError("INVALID_CREDENTIALS", "A second-factor code is required.", {
    hint: "Send the same request with `otp` set to the code that your authenticator app shows, or to a recovery code.",
    violations: [{ field: "otp", issue: "is required" }],
  });
}

function wrongOtp(): DomainError {
  return new DomainError("INVALID_CREDENTIALS", "The second-factor code is wrong.", {
    hint: "Send the code that your authenticator app shows now, or a recovery code. Each code works once. Check the clock of your device.",
    violations: [{ field: "otp", issue: "is wrong, has expired or has been used before" }],
  });
}

function notPending(): DomainError {
  return new DomainError("CONFLICT", "There is no second factor to confirm.", {
    hint: "Begin with POST /auth/second-factor, and confirm within 10 minutes.",
  });
}

function notEnabled(): DomainError {
  return new DomainError("CONFLICT", "You have no second factor.", {
    hint: "Set one up with POST /auth/second-factor.",
  });
}
