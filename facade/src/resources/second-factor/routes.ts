import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { callFor, signedInOf } from "../../pipeline/base/request-context.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent } from "../../pipeline/validation/common-schemas.ts";
import {
  ConfirmedBody,
  ConfirmSecondFactorBody,
  CreateSecondFactorBody,
  NewSecondFactor,
  RecoveryCodes,
  SecondFactor,
} from "./schemas.ts";

const { method: rpc } = IdentityService;
const tags = ["Accounts"];

export const secondFactorRoutes: RoutePlugin = async (app, { clients: { identity }, limits }) => {
  app.get(
    "/auth/second-factor",
    {
      config: { rules: { rpc: rpc.getSecondFactor, audit: "second_factor.read" } },
      schema: { tags, summary: "Read whether you have a second factor", response: { 200: SecondFactor } },
    },
    async (request) => {
      const { enabled, recoveryCodesLeft } = await identity.getSecondFactor({}, callFor(request));
      return { enabled, recovery_codes_left: recoveryCodesLeft };
    },
  );

  app.post(
    "/auth/second-factor",
    {
      config: {
        rules: {
          rpc: rpc.createSecondFactor,
          audit: "second_factor.enable",
          errors: ["INVALID_CREDENTIALS", "CONFLICT"],
        },
      },
      schema: {
        tags,
        summary: "Set up a second factor",
        description:
          "Makes a secret for an authenticator app. It takes effect once a code is sent to POST /auth/second-factor/confirm, within 10 minutes.",
        body: CreateSecondFactorBody,
        response: { 201: NewSecondFactor },
      },
    },
    async (request, reply) => {
      await limits.countPasswordUse(signedInOf(request).user.id, reply);
      const { secret, uri } = await identity.createSecondFactor(passwordOf(request.body), callFor(request));
      return reply.code(201).send({ secret, uri });
    },
  );

  app.post(
    "/auth/second-factor/confirm",
    {
      config: {
        rules: {
          rpc: rpc.confirmSecondFactor,
          audit: "second_factor.enable",
          errors: ["INVALID_CREDENTIALS", "CONFLICT"],
        },
      },
      schema: {
        tags,
        summary: "Enable the second factor",
        description: "From then on signing in with the password needs a code. Sends a mail about it.",
        body: ConfirmSecondFactorBody,
        response: { 200: RecoveryCodes },
      },
    },
    async (request, reply) => {
      const { recoveryCodes } = await identity.confirmSecondFactor({ otp: request.body.otp }, callFor(request));
      return reply.send({ recovery_codes: recoveryCodes });
    },
  );

  app.post(
    "/auth/second-factor/recovery-codes",
    {
      config: {
        rules: {
          rpc: rpc.createRecoveryCodes,
          audit: "second_factor.replace_recovery_codes",
          errors: ["INVALID_CREDENTIALS", "CONFLICT"],
        },
      },
      schema: {
        tags,
        summary: "Make new recovery codes",
        description: "They replace the ones that are left.",
        body: ConfirmedBody,
        response: { 200: RecoveryCodes },
      },
    },
    async (request, reply) => {
      await limits.countPasswordUse(signedInOf(request).user.id, reply);
      const confirmation = { ...passwordOf(request.body), otp: request.body.otp };
      const { recoveryCodes } = await identity.createRecoveryCodes(confirmation, callFor(request));
      return reply.send({ recovery_codes: recoveryCodes });
    },
  );

  app.delete(
    "/auth/second-factor",
    {
      config: {
        rules: {
          rpc: rpc.deleteSecondFactor,
          audit: "second_factor.remove",
          errors: ["INVALID_CREDENTIALS", "CONFLICT"],
        },
      },
      schema: {
        tags,
        summary: "Remove the second factor",
        description: "Sends a mail about it.",
        body: ConfirmedBody,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      await limits.countPasswordUse(signedInOf(request).user.id, reply);
      const confirmation = { ...passwordOf(request.body), otp: request.body.otp };
      await identity.deleteSecondFactor(confirmation, callFor(request));
      return reply.code(204).send(null);
    },
  );
};

function passwordOf({ password }: { password?: string }): { password?: string } {
  return password === undefined ? {} : { password };
}
