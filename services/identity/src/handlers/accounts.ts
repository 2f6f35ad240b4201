import type { ServiceImpl } from "@connectrpc/connect";
import { callOf } from "@sandgate/kit/rpc/context";
import type { IdentityService } from "@sandgate/proto/identity/v1/identity";
import type { Accounts } from "../usecases/accounts.ts";
import type { MailBudgets } from "../usecases/mail-budgets.ts";
import type { PasswordChanges } from "../usecases/password-changes.ts";
import type { UserAdministration } from "../usecases/user-administration.ts";

/** Answers what users do to their own accounts: registration, verification, passwords and deletion. */
export function createAccountHandlers(o: {
  accounts: Accounts;
  passwords: PasswordChanges;
  administration: UserAdministration;
  mailBudgets: MailBudgets;
  /** Runs what an answer must not wait for. */
  runInBackground(what: string, task: () => Promise<void>): void;
}) {
  const { accounts, passwords, administration, mailBudgets } = o;
  return {
    async register(request, context) {
      await accounts.register(request, callOf(context));
      return {};
    },

    async verifyEmail({ token, password }, context) {
      await accounts.verifyEmail(token, password, callOf(context));
      return {};
    },

    async resendVerification({ username }, context) {
      await mailBudgets.countRequest(callOf(context).clientAddress);
      // The time of the answer would reveal whether there is such a user.
      o.runInBackground("renew a verification", () => accounts.resendVerification(username));
      return {};
    },

    async changePassword(request, context) {
      await passwords.change(callOf(context), request);
      return {};
    },

    async requestPasswordReset({ username }, context) {
      await mailBudgets.countRequest(callOf(context).clientAddress);
      // Here too the time of the answer would reveal the user.
      o.runInBackground("mail a link that sets a new password", () => passwords.requestReset(username));
      return {};
    },

    async resetPassword({ token, password }, context) {
      await passwords.reset(token, password, callOf(context));
      return {};
    },

    async deleteAccount({ password }, context) {
      await administration.deleteOwn(callOf(context), password || undefined);
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}
