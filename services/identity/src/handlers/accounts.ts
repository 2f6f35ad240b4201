import type { ServiceImpl } from "@connectrpc/connect";
import { invalid } from "@sandgate/kit/base/domain-error";
import { callOf, userOf } from "@sandgate/kit/rpc/context";
import type { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { toIdentity, toUser } from "../messages.ts";
import type { Accounts } from "../usecases/accounts.ts";
import type { MailBudgets } from "../usecases/mail-budgets.ts";
import type { PasswordChanges } from "../usecases/password-changes.ts";
import type { SecondFactors } from "../usecases/second-factors.ts";
import type { UserAdministration } from "../usecases/user-administration.ts";

/** Answers what users ask of their own accounts: registration, verification, passwords, the record and deletion. */
export function createAccountHandlers(o: {
  accounts: Accounts;
  passwords: PasswordChanges;
  administration: UserAdministration;
  secondFactors: Pick<SecondFactors, "status">;
  mailBudgets: MailBudgets;
  /** Runs what an answer must not wait for. */
  runInBackground(what: string, task: () => Promise<void>): void;
}) {
  const { accounts, passwords, administration, secondFactors, mailBudgets } = o;
  return {
    async register(request, context) {
      await accounts.register(request, callOf(context));
      return {};
    },

    async verifyEmail({ token, password }, context) {
      if (password === undefined) throw invalid("password", "is required");
      await accounts.verifyEmail(token, password, callOf(context));
      return {};
    },

    async resendVerification({ username }, context) {
      const call = callOf(context);
      await mailBudgets.countRequest(call.clientAddress);
      // The time of the answer would reveal whether there is such a user.
      o.runInBackground("renew a verification", () => accounts.resendVerification(username, call));
      return {};
    },

    async changePassword(request, context) {
      await passwords.change(callOf(context), request);
      return {};
    },

    async requestPasswordReset({ username }, context) {
      const call = callOf(context);
      await mailBudgets.countRequest(call.clientAddress);
      // Here too the time of the answer would reveal the user.
      o.runInBackground("mail a link that sets a new password", () => passwords.requestReset(username, call));
      return {};
    },

    async resetPassword({ token, password }, context) {
      const identities = await passwords.reset(token, password, callOf(context));
      return { identities: identities.map(toIdentity) };
    },

    async confirmCaller({ password }, context) {
      await administration.confirm(callOf(context), password || undefined);
      return {};
    },

    async getAccount(_request, context) {
      const call = callOf(context);
      const [user, { enabled }] = await Promise.all([
        administration.findOwn(call),
        secondFactors.status(userOf(call).id),
      ]);
      return { user: toUser(user), hasSecondFactor: enabled };
    },

    async deleteAccount({ password }, context) {
      await administration.deleteOwn(callOf(context), password || undefined);
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}
