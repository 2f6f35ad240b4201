import type { ServiceImpl } from "@connectrpc/connect";
import { callOf, userOf } from "@sandgate/kit/rpc/context";
import type { IdentityService } from "@sandgate/proto/identity/v1/identity";
import type { SecondFactors } from "../usecases/second-factors.ts";

/** Answers what sets up, changes and removes second factors. */
export function createSecondFactorHandlers({ secondFactors }: { secondFactors: SecondFactors }) {
  return {
    async getSecondFactor(_request, context) {
      return secondFactors.status(userOf(callOf(context)).id);
    },

    async createSecondFactor({ password }, context) {
      return secondFactors.create(userOf(callOf(context)), password);
    },

    async confirmSecondFactor({ otp }, context) {
      return { recoveryCodes: await secondFactors.confirm(callOf(context), otp) };
    },

    async createRecoveryCodes({ password, otp }, context) {
      return { recoveryCodes: await secondFactors.replaceRecoveryCodes(callOf(context), { password, otp }) };
    },

    async deleteSecondFactor({ password, otp }, context) {
      await secondFactors.remove(callOf(context), { password, otp });
      return {};
    },

    async deleteUserSecondFactor({ userId }, context) {
      await secondFactors.removeOf(callOf(context), { id: userId });
      return {};
    },
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}
