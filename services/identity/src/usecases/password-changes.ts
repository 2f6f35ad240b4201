import { DomainError } from "@sandgate/kit/base/domain-error";
import { addMs, hourMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { type Call, userOf } from "@sandgate/kit/rpc/context";
import { type PasswordChange, passwordResetSeconds } from "../domain/passwords.ts";
import { budget, rateLimited } from "../domain/rate-counters.ts";
import type { LinkedIdentity } from "../domain/single-sign-on.ts";
import { badLink, hashSecret, newSecret } from "../domain/tokens.ts";
import { usernameKey } from "../domain/users.ts";
import {
  signalApiTokenRevoked,
  signalSessionsEnded,
  userApiTokensRevoked,
  userPasswordChanged,
  userPasswordReset,
} from "../events.ts";
import { composePasswordChanged, composePasswordReset } from "../mail/texts.ts";
import type { PasswordHasher } from "../passwords/hasher.ts";
import type { PasswordStrength } from "../passwords/strength.ts";
import type { IdentityStore } from "../store/store.ts";
import type { MailBudgets } from "./mail-budgets.ts";
import type { MailQueue } from "./mail-queue.ts";
import type { SignInAttempts } from "./sign-in-attempts.ts";

/** Each change sends a mail. */
const changesPerHour = 10;

/** How a password is replaced. A new one ends the user's sessions, and a mail notifies the user. */
export interface PasswordChanges {
  /**
   * Keeps the caller's session, and the API tokens unless they are to be revoked. Throws INVALID_CREDENTIALS for a
   * wrong current password, VALIDATION_ERROR for a weak new one, RATE_LIMITED after many changes in an hour.
   */
  change(call: Call, request: { currentPassword: string; password: string; revokeApiTokens: boolean }): Promise<void>;
  /** Mails a link if there is a verified user of that name. */
  requestReset(username: string, call: Call): Promise<void>;
  /**
   * Revokes all API tokens, and returns the links that remain. Throws INVALID_TOKEN for an unknown, used or expired
   * token, or VALIDATION_ERROR for a weak password.
   */
  reset(token: string, password: string, call: Call): Promise<LinkedIdentity[]>;
}

export function createPasswordChanges(o: {
  store: IdentityStore;
  hasher: PasswordHasher;
  strength: PasswordStrength;
  mails: MailQueue;
  mailBudgets: MailBudgets;
  attempts: Pick<SignInAttempts, "isOwnNetwork">;
  bus: EventBus;
  publicUrl: string;
  now: () => Date;
}): PasswordChanges {
  const { store, hasher, strength, mails, mailBudgets, attempts, bus, publicUrl, now } = o;

  /** Checks and hashes a new password. */
  async function prepare(
    { password, revokesApiTokens }: { password: string; revokesApiTokens: boolean },
    { userId, username }: { userId: string; username: string },
    event: StagedEvent,
    call: Call,
  ): Promise<PasswordChange & { identities: LinkedIdentity[] }> {
    await strength.require(password, username);
    const identities = await store.singleSignOn.list(userId);
    const notice = composePasswordChanged({ to: username, publicUrl, revokesApiTokens, identities });
    return {
      passwordHash: await hasher.hash(password),
      revokesApiTokens,
      noticeMail: mails.seal(notice),
      events: [event, ...(revokesApiTokens ? [userApiTokensRevoked(call, userId)] : [])],
      identities,
    };
  }

  function finish(userId: string, endedSessions: readonly string[], { revokesApiTokens }: PasswordChange): void {
    signalSessionsEnded(bus, endedSessions);
    if (revokesApiTokens) signalApiTokenRevoked(bus, userId);
    mails.wake();
  }

  return {
    async change(call, { currentPassword, password, revokeApiTokens: revokesApiTokens }) {
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
      const user = { userId: id, username: found.user.username };
      const event = userPasswordChanged(call, id);
      const { identities: _, ...change } = await prepare({ password, revokesApiTokens }, user, event, call);
      const ended = await store.passwords.change({ id, currentHash, sessionId }, change, now());
      // Another change came first, after which this password is no longer the current one.
      if (!ended) throw wrongPassword();
      finish(id, ended, change);
    },

    async requestReset(username, { clientAddress: address }) {
      const found = await store.users.findAccount({ usernameKey: usernameKey(username) });
      if (!found?.user.verified) return;
      const { user } = found;
      const fromOwnNetwork = address !== undefined && (await attempts.isOwnNetwork(user.id, address));
      if (!(await mailBudgets.mayMail({ username, purpose: "reset", address, fromOwnNetwork }))) return;
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
      const { userId } = found;
      const event = userPasswordReset(call, userId);
      const { identities, ...change } = await prepare({ password, revokesApiTokens: true }, found, event, call);
      const ended = await store.passwords.reset(tokenHash, change, now());
      if (!ended) throw badLink("/auth/password/forgot");
      finish(userId, ended, change);
      return identities;
    },
  };
}

function wrongPassword(): DomainError {
  return new DomainError("INVALID_CREDENTIALS", "The current password is wrong.", {
    hint: "Check the password. If you have forgotten it, request a link with POST /auth/password/forgot.",
  });
}
