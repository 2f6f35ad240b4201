import type { ServiceImpl } from "@connectrpc/connect";
import { readPage } from "@sandgate/kit/base/page";
import { callOf, userOf } from "@sandgate/kit/rpc/context";
import type { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { toClientInfo, toFinishSsoResponse, toIdentity, toSession, toStartSsoResponse } from "../messages.ts";
import type { Recaptcha } from "../usecases/recaptcha.ts";
import type { Sessions } from "../usecases/sessions.ts";
import type { SigningKeys } from "../usecases/signing-keys.ts";
import type { SingleSignOn } from "../usecases/single-sign-on.ts";

/** Answers what begins, continues and ends sessions, which providers may begin them, and what verifies their tokens. */
export function createSessionHandlers(o: {
  sessions: Sessions;
  singleSignOn: SingleSignOn;
  recaptcha: Recaptcha;
  keys: SigningKeys;
  registration: "open" | "closed";
  recaptchaSecret: string | undefined;
}) {
  const { sessions, singleSignOn, recaptcha, keys } = o;
  return {
    async signIn({ username, password, otp, recaptchaToken, ...request }, context) {
      const call = callOf(context);
      await recaptcha.require(recaptchaToken, call.clientAddress);
      const client = toClientInfo(request.client);
      return { tokens: await sessions.signIn({ username, password, otp }, client, call) };
    },

    getSignInOptions: async () => ({
      providers: [...singleSignOn.providers],
      registrationOpen: o.registration === "open",
      recaptcha: o.recaptchaSecret !== undefined,
    }),

    async startSso({ provider, redirectUri }, context) {
      const started = await singleSignOn.start(provider, redirectUri, callOf(context));
      return toStartSsoResponse(started);
    },

    async finishSso({ client, ...response }, context) {
      const finished = await singleSignOn.finish(response, toClientInfo(client), callOf(context));
      return toFinishSsoResponse(finished);
    },

    async listIdentities(_request, context) {
      const identities = await singleSignOn.list(userOf(callOf(context)).id);
      return { identities: identities.map(toIdentity) };
    },

    async deleteIdentity({ identityId }, context) {
      await singleSignOn.unlink(callOf(context), identityId);
      return {};
    },

    async refreshSession({ refreshToken, client }, context) {
      return { tokens: await sessions.refresh(refreshToken, toClientInfo(client), callOf(context)) };
    },

    async listSessions({ page }, context) {
      const { id, credentialId } = userOf(callOf(context));
      const { rows, nextCursor } = await readPage(page, (limit, after) => sessions.list(id, limit, after));
      return { sessions: rows.map((session) => toSession(session, credentialId)), nextCursor };
    },

    async getSession(_request, context) {
      return { expiresInMs: await sessions.expiresInMs(userOf(callOf(context))) };
    },

    async endSession({ sessionId }, context) {
      await sessions.end(callOf(context), sessionId);
      return {};
    },

    async endOtherSessions(_request, context) {
      await sessions.endOthers(callOf(context));
      return {};
    },

    async signOut({ refreshToken }, context) {
      await sessions.signOut(refreshToken, callOf(context));
      return {};
    },

    async getSigningKeys() {
      const [jwks, endedSessionIds] = await Promise.all([keys.publicJwks(), sessions.listEnded()]);
      return { jwks: JSON.stringify(jwks), endedSessionIds, issuer: keys.issuer, audience: keys.audience };
    },
  } satisfies Partial<ServiceImpl<typeof IdentityService>>;
}
