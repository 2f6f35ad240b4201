import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { isUuid, newId } from "@sandgate/kit/base/ids";
import { readPage } from "@sandgate/kit/base/page";
import type { EventBus } from "@sandgate/kit/events/bus";
import { callOf, userOf } from "@sandgate/kit/rpc/context";
import { runIdempotent } from "@sandgate/kit/rpc/idempotency";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import {
  CreateApiTokenResponseSchema,
  IdentityService,
  RevokeApiTokenResponseSchema,
} from "@sandgate/proto/identity/v1/identity";
import type { Accounts } from "./domain/accounts.ts";
import {
  type ApiToken,
  hintOf,
  isApiToken,
  isExpired,
  newApiToken,
  newTokenExpiry,
  tooManyApiTokens,
  type UseLog,
} from "./domain/api-tokens.ts";
import type { MailBudgets } from "./domain/mail-budgets.ts";
import type { OperatorSecondFactor } from "./domain/operator-rights.ts";
import type { PasswordChanges } from "./domain/password-changes.ts";
import type { Recaptcha } from "./domain/recaptcha.ts";
import type { SecondFactors } from "./domain/second-factors.ts";
import type { Sessions } from "./domain/sign-in.ts";
import type { SigningKeys } from "./domain/signing-keys.ts";
import type { SingleSignOn } from "./domain/sso.ts";
import { hashSecret } from "./domain/tokens.ts";
import type { UserAdministration } from "./domain/user-administration.ts";
import { usernameKey } from "./domain/users.ts";
import { apiTokenCreated, apiTokenRevoked, signalApiTokenRevoked } from "./events.ts";
import {
  toApiToken,
  toClientInfo,
  toFinishSsoResponse,
  toSession,
  toStartSsoResponse,
  toUser,
  toVerifiedApiToken,
} from "./messages.ts";
import { type IdentityStore, slotLeaseMs } from "./store/store.ts";

/** Answers the service's calls. */
export function createHandlers(o: {
  accounts: Accounts;
  passwords: PasswordChanges;
  administration: UserAdministration;
  sessions: Sessions;
  secondFactors: SecondFactors;
  operatorSecondFactor: OperatorSecondFactor;
  recaptcha: Recaptcha;
  mailBudgets: MailBudgets;
  sso: SingleSignOn;
  keys: SigningKeys;
  store: IdentityStore;
  uses: UseLog;
  /** Stores what is in the log of uses. */
  storeUses(): Promise<void>;
  /** Runs what an answer must not wait for. */
  runInBackground(what: string, task: () => Promise<void>): void;
  bus: EventBus;
  keyring: Keyring;
  /** How many API tokens a user may have; 0: no limit. */
  maxApiTokens: number;
  /** How many days an API token lasts at most; 0: no limit. */
  apiTokenMaxDays: number;
  now: () => Date;
}): ServiceImpl<typeof IdentityService> {
  const {
    accounts,
    passwords,
    administration,
    sessions,
    secondFactors,
    sso,
    recaptcha,
    mailBudgets,
    keys,
    store,
    uses,
    bus,
    keyring,
    now,
  } = o;

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
      // The time this takes would tell whether there is such a user.
      o.runInBackground("renew a verification", () => accounts.resendVerification(username));
      return {};
    },

    async changePassword(request, context) {
      await passwords.change(callOf(context), request);
      return {};
    },

    async requestPasswordReset({ username }, context) {
      await mailBudgets.countRequest(callOf(context).clientAddress);
      o.runInBackground("mail a link that sets a new password", () => passwords.requestReset(username));
      return {};
    },

    async resetPassword({ token, password }, context) {
      await passwords.reset(token, password, callOf(context));
      return {};
    },

    async signIn({ username, password, otp, recaptchaToken, ...request }, context) {
      const call = callOf(context);
      await recaptcha.require(recaptchaToken, call.clientAddress);
      const client = toClientInfo(request.client);
      return { tokens: await sessions.signIn({ username, password, otp }, client, call) };
    },

    async startSso({ provider, redirectUri }, context) {
      const started = await sso.start(provider, redirectUri, callOf(context));
      return toStartSsoResponse(started);
    },

    async finishSso({ client, ...response }, context) {
      const finished = await sso.finish(response, toClientInfo(client), callOf(context));
      return toFinishSsoResponse(finished);
    },

    async refreshSession({ refreshToken, client }, context) {
      return { tokens: await sessions.refresh(refreshToken, toClientInfo(client), callOf(context)) };
    },

    async listSessions({ page }, context) {
      const { id, credentialId } = userOf(callOf(context));
      const { rows, nextCursor } = await readPage(page, (limit, after) => store.listSessions(id, limit, after, now()));
      return { sessions: rows.map((session) => toSession(session, credentialId)), nextCursor };
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

    async deleteAccount({ password }, context) {
      await administration.deleteOwn(callOf(context), password || undefined);
      return {};
    },

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
      await secondFactors.removeOf(callOf(context), userId);
      return {};
    },

    async listUsers({ page, username }) {
      const name = username === "" ? undefined : usernameKey(username);
      const { rows, nextCursor } = await readPage(page, (limit, after) => store.listUsers(name, limit, after));
      return { users: rows.map(toUser), nextCursor };
    },

    async setUserDisabled({ userId, disabled }, context) {
      return { user: toUser(await administration.setDisabled(callOf(context), userId, disabled)) };
    },

    async deleteUser({ userId }, context) {
      await administration.delete(callOf(context), userId);
      return {};
    },

    async endUserSessions({ userId }, context) {
      await administration.endSessions(callOf(context), userId);
      return {};
    },

    async revokeUserApiTokens({ userId }, context) {
      await administration.revokeApiTokens(callOf(context), userId);
      return {};
    },

    createApiToken(request, context) {
      const call = callOf(context);
      const user = userOf(call);
      return runIdempotent({
        call,
        method: IdentityService.method.createApiToken,
        request,
        keyring,
        store,
        async work(recordFor) {
          const createdAt = now();
          const asked = request.expiresAt && timestampDate(request.expiresAt);
          const token = newApiToken();
          const record: ApiToken = {
            id: newId(),
            userId: user.id,
            description: request.description,
            hint: hintOf(token),
            workspaceId: parseWorkspaceId(request.workspaceId),
            role: request.role,
            expiresAt: newTokenExpiry(asked, o.apiTokenMaxDays, createdAt),
            createdAt,
            lastUsedAt: undefined,
          };
          const response = create(CreateApiTokenResponseSchema, { apiToken: toApiToken(record), token });
          const stored = { ...record, tokenHash: hashSecret(token) };
          const events = [apiTokenCreated(record, call)];
          const outcome = await store.createApiToken(stored, o.maxApiTokens, await recordFor(response), events);
          if (outcome === "too_many") throw tooManyApiTokens(o.maxApiTokens);
          return response;
        },
      });
    },

    async listApiTokens({ page }, context) {
      const user = userOf(callOf(context));
      await o.storeUses();
      const { rows, nextCursor } = await readPage(page, (limit, after) => store.listApiTokens(user.id, limit, after));
      return { apiTokens: rows.map(toApiToken), nextCursor };
    },

    revokeApiToken(request, context) {
      const call = callOf(context);
      const user = userOf(call);
      const { tokenOrId } = request;
      return runIdempotent({
        call,
        method: IdentityService.method.revokeApiToken,
        request,
        keyring,
        store,
        async work(recordFor) {
          const id = isApiToken(tokenOrId) ? (await store.findApiToken(hashSecret(tokenOrId)))?.id : tokenOrId;
          const response = create(RevokeApiTokenResponseSchema);
          const revoked =
            id !== undefined &&
            (await store.revokeApiToken(user.id, id, [apiTokenRevoked(id, user.id, call)], await recordFor(response)));
          if (!revoked) throw new DomainError("API_KEY_NOT_FOUND", "You have no such API token.");
          signalApiTokenRevoked(bus, id);
          return response;
        },
      });
    },

    async verifyApiToken({ token }) {
      const found = isApiToken(token) ? await store.findApiToken(hashSecret(token)) : undefined;
      if (!found || isExpired(found, now())) {
        throw new DomainError("INVALID_TOKEN", "The API token is unknown, has been revoked or has expired.");
      }
      uses.note(found, now());
      return toVerifiedApiToken(found, o.operatorSecondFactor);
    },

    async batchGetUsers({ userIds, usernames }) {
      const users = await store.findUsers(userIds, usernames.map(usernameKey));
      return { users: users.map(toUser) };
    },

    async drawRequests(request) {
      const { granted, remaining, endsAt } = await store.drawRequests(request, now());
      return { granted, remaining, resetMs: Math.max(0, endsAt.getTime() - now().getTime()) };
    },

    async holdSlots({ holder, holds }) {
      return { held: await store.holdSlots(holder, holds, now()), leaseMs: slotLeaseMs };
    },

    async getSigningKeys() {
      const [jwks, endedSessionIds] = await Promise.all([keys.publicJwks(), sessions.listEnded()]);
      return { jwks: JSON.stringify(jwks), endedSessionIds, issuer: keys.issuer, audience: keys.audience };
    },
  };
}

/** Empty: not bound to a workspace. The facade checks that the user is a member. */
function parseWorkspaceId(given: string): string | undefined {
  if (given === "") return undefined;
  const id = given.toLowerCase();
  if (!isUuid(id)) throw invalid("workspace_id", "must be a UUID");
  return id;
}
