import { DomainError } from "@sandgate/kit/base/domain-error";
import { addMs, hourMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { type Call, userOf } from "@sandgate/kit/rpc/context";
import { type PasswordChange, passwordResetSeconds } from "../domain/passwords.ts";
import { budget, rateLimited } from "../domain/rate-counters.ts";
import { badLink, hashSecret, newSecret } from "../domain/tokens.ts";
import { usernameKey } from "../domain/users.ts";
import { signalSessionsEnded, userPasswordChanged, userPasswordReset } from "../events.ts";
import { composePasswordChanged, composePasswordReset } from "../mail/texts.ts";
import type { PasswordHasher } from "../passwords/hasher.ts";
import type { PasswordStrength } from "../passwords/strength.ts";
import type { IdentityStore } from "../store/store.ts";
import type { MailBudgets } from "./mail-budgets.ts";
import type { MailQueue } from "./mail-queue.ts";

/** Each change sends a mail. */
const changesPerHour = 10;

/** How a password is replaced. A new one ends the user's sessions, and a mail notifies the user. */
export interface PasswordChanges {
  /**
   * Keeps the caller's session. Throws INVALID_CREDENTIALS for a wrong current password, VALIDATION_ERROR for a weak
   * new one, RATE_LIMITED after many changes in an hour.
   */
  change(call: Call, request: { currentPassword: string; password: string }): Promise<void>;
  /** Mails a link if there is a verified user of that name. */
  requestReset(username: string): Promise<void>;
  /** Throws INVALID_TOKEN for an unknown, used or expired token, or VALIDATION_ERROR for a weak password. */
  reset(token: string, password: string, call: Call): Promise<void>;
}

export function createPasswordChanges(o: {
  store: IdentityStore;
  hasher: PasswordHasher;
  strength: PasswordStrength;
  mails: MailQueue;
  mailBudgets: MailBudgets;
  bus: EventBus;
  publicUrl: string;
  now: () => Date;
}): PasswordChanges {
  const { store, hasher, strength, mails, mailBudgets, bus, publicUrl, now } = o;

  /** Checks and hashes a new password. */
  async function prepare(password: string, username: string, event: StagedEvent): Promise<PasswordChange> {
    await strength.require(password, username);
    return {
      passwordHash: await hasher.hash(password),
      noticeMail: mails.seal(composePasswordChanged({ to: username, publicUrl })),
      events: [event],
    };
  }

  function finish(endedSessions: readonly string[]): void {
    signalSessionsEnded(bus, endedSessions);
    mails.wake();
  }

  return {
    async change(call, { currentPassword, password }) {
      const { id, credentialId: sessionId } = userOf(call);
      const found = await store.users.findAccount({ id });
      const currentHash = found?.passwordHash;
      const right = await hasher.verify(currentPassword, currentHash);
      if (!found || currentHash === undefined || !right) throw wrongPassword();
      const at = now();
      const overspent = await store.rateCounters.consumeEach(
        [budget(`password changes of ${id}`, changesPerHour, hourMs)],
        at,
      );
      if (overspent) throw rateLimited("The password was changed too often in the last hour.", overspent, at);
      const change = await prepare(password, found.user.username, userPasswordChanged(call, id));
      const ended = await store.passwords.change({ id, currentHash, sessionId }, change, now());
      // Another change came first, after which this password is no longer the current one.
      if (!ended) throw wrongPassword();
      finish(ended);
    },

    async requestReset(username) {
      const found = await store.users.findAccount({ usernameKey: usernameKey(username) });
      if (!found?.user.verified || !(await mailBudgets.mayMail(username, "reset"))) return;
      const { user } = found;
      const token = newSecret();
      const reset = {
        tokenHash: hashSecret(token),
        expiresAt: addMs(now(), passwordResetSeconds * 1000),
        // The mail goes to the address of the account: the one in the request may differ in the case of a letter.
        mail: mails.seal(composePasswordReset({ to: user.username, publicUrl, token })),
      };
      const added = await store.passwords.addReset(user.id, reset, now());
      if (added) mails.wake();
    },

    async reset(token, password, call) {
      const tokenHash = hashSecret(token);
      const found = await store.passwords.findReset(tokenHash, now());
      if (!found) throw badLink("/auth/password/forgot");
      const change = await prepare(password, found.username, userPasswordReset(call, found.userId));
      const ended = await store.passwords.reset(tokenHash, change, now());
      if (!ended) throw badLink("/auth/password/forgot");
      finish(ended);
    },
  };
}

function wrongPassword(): DomainError {
  return new DomainError("INVALID_CREDENTIALS", "The current password is wrong.", {
    hint: "Check the password. If you have forgotten it, request a link with POST /auth/password/forgot.",
  });
}
