import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { addMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { Call } from "@sandgate/kit/rpc/context";
import { type NewVerification, verificationSeconds } from "../domain/registrations.ts";
import { badLink, hashSecret, newSecret } from "../domain/tokens.ts";
import { usernameKey } from "../domain/users.ts";
import { signalSessionsEnded, userCreated, userVerified } from "../events.ts";
import { composeNameTaken, composeVerification } from "../mail/texts.ts";
import { newPassword, type PasswordHasher } from "../passwords/hasher.ts";
import type { PasswordStrength } from "../passwords/strength.ts";
import type { IdentityStore } from "../store/store.ts";
import type { MailBudgets } from "./mail-budgets.ts";
import type { MailQueue } from "./mail-queue.ts";
import type { Recaptcha } from "./recaptcha.ts";

/** How accounts are created and verified. */
export interface Accounts {
  /**
   * Throws FORBIDDEN when registration is closed, VALIDATION_ERROR for a bad reCAPTCHA token or a password that is easy
   * to guess, RATE_LIMITED when too many passwords wait to be hashed or the client has requested too many mails.
   */
  register(request: { username: string; password: string; recaptchaToken: string }, call: Call): Promise<void>;
  /**
   * Sets the password that whoever follows the link types then: nobody's who only registered the address. Throws
   * INVALID_TOKEN for an unknown, used or expired token, VALIDATION_ERROR for a weak password.
   */
  verifyEmail(token: string, password: string, call: Call): Promise<void>;
  resendVerification(username: string, call: Call): Promise<void>;
  /**
   * Creates the operator of a new installation, by default with a random password. Undefined when there is an operator.
   */
  createFirstOperator(username: string, password: string | undefined): Promise<{ password: string } | undefined>;
}

export function createAccounts(o: {
  store: IdentityStore;
  hasher: PasswordHasher;
  strength: PasswordStrength;
  recaptcha: Recaptcha;
  bus: EventBus;
  mails: MailQueue;
  mailBudgets: MailBudgets;
  publicUrl: string;
  registration: "open" | "closed";
  now: () => Date;
}): Accounts {
  const { store, hasher, strength, recaptcha, bus, mails, mailBudgets, publicUrl, now } = o;

  function newVerification(username: string): NewVerification {
    const token = newSecret();
    return {
      tokenHash: hashSecret(token),
      expiresAt: addMs(now(), verificationSeconds * 1000),
      mail: mails.seal(composeVerification({ to: username, publicUrl, token })),
    };
  }

  return {
    async register({ username, password, recaptchaToken }, call) {
      if (o.registration === "closed") throw registrationClosed();
      await recaptcha.require(recaptchaToken, call.clientAddress);
      await mailBudgets.countRequest(call.clientAddress);
      await strength.require(password, username);
      // All of this happens for a taken name too, so that neither the answer nor its timing reveals it.
      const id = newId();
      // Here too the mail goes to the address of the account, if there is one.
      const holder = await store.users.findAccount({ usernameKey: usernameKey(username) });
      const to = holder?.user.username ?? username;
      await store.registrations.register({
        id,
        username,
        usernameKey: usernameKey(username),
        passwordHash: await hasher.hash(password),
        createdAt: now(),
        mails: (await mailBudgets.mayMail({ username, purpose: "registration", address: call.clientAddress }))
          ? {
              verification: newVerification(to),
              notice: mails.seal(composeNameTaken({ to, publicUrl })),
            }
          : undefined,
        events: [userCreated(call, id)],
      });
      mails.wake();
    },

    async verifyEmail(token, password, call) {
      const tokenHash = hashSecret(token);
      const found = await store.registrations.findVerification(tokenHash, now());
      if (!found) throw badLink("/auth/resend-verification");
      await strength.require(password, found.username);
      const passwordHash = await hasher.hash(password);
      const events = [userVerified(call, found.userId)];
      const ended = await store.registrations.verify(tokenHash, passwordHash, now(), events);
      if (!ended) throw badLink("/auth/resend-verification");
      signalSessionsEnded(bus, ended);
    },

    async resendVerification(username, { clientAddress: address }) {
      const found = await store.users.findAccount({ usernameKey: usernameKey(username) });
      if (!found || found.user.verified) return;
      if (!(await mailBudgets.mayMail({ username, purpose: "verification", address }))) return;
      // The mail goes to the address of the account: the one in the request may differ in the case of a letter.
      const { user } = found;
      if (await store.registrations.renew(user.id, newVerification(user.username), now())) mails.wake();
    },

    async createFirstOperator(username, given) {
      if (await store.users.hasOperator()) return undefined;
      const password = given ?? newPassword();
      const [id, createdAt] = [newId(), now()];
      const created = await store.users.createFirstOperator({
        user: {
          id,
          username,
          usernameKey: usernameKey(username),
          passwordHash: await hasher.hash(password),
          verifiedAt: createdAt,
          operator: true,
          createdAt,
        },
        events: [userCreated(undefined, id)],
      });
      return created ? { password } : undefined;
    },
  };
}

export function registrationClosed(): DomainError {
  return new DomainError("FORBIDDEN", "Registration is closed on this server.", {
    hint: "Ask an operator of this server for an account.",
  });
}
