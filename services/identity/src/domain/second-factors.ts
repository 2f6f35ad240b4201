import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { addMs, minuteMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { UserCaller } from "@sandgate/kit/rpc/context";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import { signalApiTokenRevoked, signalSessionsEnded } from "../events.ts";
import type { MailQueue } from "../mail/queue.ts";
import { composeRecoveryCodeUsed, composeSecondFactorEnabled, composeSecondFactorRemoved } from "../mail/texts.ts";
import type { IdentityStore, SecondFactor } from "../store/store.ts";
import { confirmCaller } from "./confirmation.ts";
import { canonicalRecoveryCode, newOtpSecret, newRecoveryCodes, presentOtpSecret, stepOf } from "./otp.ts";
import type { PasswordHasher } from "./passwords.ts";
import { hashSecret } from "./tokens.ts";
import type { User } from "./users.ts";

/** How long a second factor waits to be confirmed. */
const pendingMs = 10 * minuteMs;

/** What confirms that the caller is the user: the password, in an account that has one, and a code. */
interface Confirmation {
  password: string | undefined;
  otp: string;
}

/**
 * Second factors of users: codes of an authenticator app, and recovery codes for whoever has lost it. A wrong code is
 * INVALID_CREDENTIALS with a violation of `otp`; after several in a row, codes are RATE_LIMITED for a while.
 */
export interface SecondFactors {
  status(userId: string): Promise<{ enabled: boolean; recoveryCodesLeft: number }>;
  /** Makes a secret to confirm. Throws CONFLICT when the caller has a second factor, and what `confirmCaller` throws. */
  create(caller: UserCaller, password: string | undefined): Promise<{ secret: string; uri: string }>;
  /** Enables it, and answers its recovery codes. Throws CONFLICT when none is to be confirmed. */
  confirm(caller: UserCaller, otp: string): Promise<string[]>;
  /** Answers new recovery codes, which replace the others. Throws CONFLICT without a second factor. */
  replaceRecoveryCodes(caller: UserCaller, confirmation: Confirmation): Promise<string[]>;
  /** Throws CONFLICT without a second factor. */
  remove(caller: UserCaller, confirmation: Confirmation): Promise<void>;
  /** For operators: removes it, if there is one, and ends all sessions of the user then. Throws NOT_FOUND. */
  removeOf(userId: string): Promise<void>;
  /**
   * What a sign-in needs besides the right password: whether the user has a second factor, and the code is right. Throws
   * INVALID_CREDENTIALS without one that is needed.
   */
  check(user: User, otp: string | undefined): Promise<boolean>;
}

export function createSecondFactors(o: {
  store: IdentityStore;
  hasher: PasswordHasher;
  keyring: Keyring;
  mails: MailQueue;
  bus: EventBus;
  publicUrl: string;
  now: () => Date;
}): SecondFactors {
  const { store, keyring, mails, bus, publicUrl, now } = o;

  const place = (id: string) => ({ service: "identity", table: "second_factors", record: id });
  const open = ({ id, sealed }: SecondFactor) => keyring.open(sealed, place(id));
  const hashesOf = (codes: readonly string[]) => codes.flatMap((code) => hashOf(code) ?? []);

  /** False for a user without a second factor. */
  async function useCode(user: User, otp: string): Promise<boolean> {
    const attempt = await store.beginOtpAttempt(user.id, now());
    switch (attempt.outcome) {
      case "none":
        return false;
      case "refused":
        throw new DomainError("RATE_LIMITED", "Too many wrong codes were given for this account.", {
          hint: "Wait as long as the Retry-After header says. Codes count as wrong when they were used before, too.",
          retryAfterSeconds: (attempt.until.getTime() - now().getTime()) / 1000,
        });
      case "counted": {
        const { factor } = attempt;
        const step = stepOf(open(factor), otp, now());
        const accepted =
          step === undefined ? await useRecoveryCode(user, factor.id, otp) : await store.acceptOtp(factor.id, step);
        if (!accepted) throw wrongOtp();
        return true;
      }
    }
  }

  async function useRecoveryCode(user: User, factorId: string, otp: string): Promise<boolean> {
    const codeHash = hashOf(otp);
    if (!codeHash) return false;
    const notice = mails.seal(composeRecoveryCodeUsed({ to: user.username, publicUrl }));
    const used = await store.useRecoveryCode(user.id, factorId, codeHash, notice, now());
    if (used) mails.wake();
    return used;
  }

  /** The caller, once password and code are right. */
  async function confirmWithCode(caller: UserCaller, { password, otp }: Confirmation): Promise<User> {
    const user = await confirmCaller(o, caller, password);
    if (!(await useCode(user, otp))) throw notEnabled();
    return user;
  }

  async function remove(user: Pick<User, "id" | "username">, endSessions: boolean): Promise<boolean> {
    const noticeMail = mails.seal(composeSecondFactorRemoved({ to: user.username, publicUrl }));
    const ended = await store.removeSecondFactor(user.id, { noticeMail, endSessions }, now());
    if (!ended) return false;
    signalSessionsEnded(bus, ended);
    // The rights of an operator's tokens may depend on it.
    signalApiTokenRevoked(bus, user.id);
    mails.wake();
    return true;
  }

  return {
    async status(userId) {
      const found = await store.findSecondFactor(userId);
      return { enabled: found !== undefined, recoveryCodesLeft: found?.recoveryCodesLeft ?? 0 };
    },

    async create(caller, password) {
      const user = await confirmCaller(o, caller, password);
      const [id, secret] = [newId(), newOtpSecret()];
      const sealed = keyring.seal(secret, place(id));
      const added = await store.addSecondFactor({ id, userId: user.id, sealed, expiresAt: addMs(now(), pendingMs) });
      if (!added) {
        throw new DomainError("CONFLICT", "You have a second factor.", {
          hint: "Remove it with DELETE /auth/second-factor before you set up another.",
        });
      }
      return presentOtpSecret(secret, user.username);
    },

    async confirm({ id: userId }, otp) {
      const pending = await store.findPendingSecondFactor(userId, now());
      const [user] = await store.findUsers([userId], []);
      if (!pending || !user) throw notPending();
      const step = stepOf(open(pending), otp, now());
      if (step === undefined) throw wrongOtp();
      const codes = newRecoveryCodes();
      const noticeMail = mails.seal(composeSecondFactorEnabled({ to: user.username, publicUrl }));
      const confirmed = { id: pending.id, userId, step, recoveryCodeHashes: hashesOf(codes), noticeMail };
      if (!(await store.enableSecondFactor(confirmed, now()))) throw notPending();
      signalApiTokenRevoked(bus, userId);
      mails.wake();
      return codes;
    },

    async replaceRecoveryCodes(caller, confirmation) {
      const user = await confirmWithCode(caller, confirmation);
      const codes = newRecoveryCodes();
      if (!(await store.replaceRecoveryCodes(user.id, hashesOf(codes)))) throw notEnabled();
      return codes;
    },

    async remove(caller, confirmation) {
      const user = await confirmWithCode(caller, confirmation);
      if (!(await remove(user, false))) throw notEnabled();
    },

    async removeOf(userId) {
      const [user] = await store.findUsers([userId], []);
      if (!user) {
        throw new DomainError("NOT_FOUND", "There is no such user.", {
          hint: "Check the id against GET /admin/users.",
        });
      }
      await remove(user, true);
    },

    async check(user, otp) {
      if (otp !== undefined) return useCode(user, otp);
      if (await store.findSecondFactor(user.id)) throw otpNeeded();
      return false;
    },
  };
}

function hashOf(otp: string): Uint8Array | undefined {
  const code = canonicalRecoveryCode(otp);
  return code === undefined ? undefined : hashSecret(code);
}

function otpNeeded(): DomainError {
  return new DomainError("INVALID_CREDENTIALS", "A code of the second factor is needed.", {
    hint: "Send the same request with `otp`: the code that your authenticator app shows, or a recovery code.",
    violations: [{ field: "otp", issue: "is required" }],
  });
}

function wrongOtp(): DomainError {
  return new DomainError("INVALID_CREDENTIALS", "The code of the second factor is wrong.", {
    hint: "Send the code that your authenticator app shows now, each only once, or a recovery code. Check the clock of your device.",
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
