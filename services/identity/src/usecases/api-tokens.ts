import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Cursor } from "@sandgate/kit/base/page";
import { hourMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import { type Call, userOf } from "@sandgate/kit/rpc/context";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import {
  type ApiToken,
  type ApiTokenRequest,
  hashApiToken,
  hintOf,
  isApiToken,
  isExpired,
  isUsable,
  type NewApiToken,
  newApiToken,
  newTokenExpiry,
  type TokenUse,
  tooManyApiTokens,
  type VerifiedApiToken,
} from "../domain/api-tokens.ts";
import { budget } from "../domain/rate-counters.ts";
import { apiTokenCreated, apiTokenRevoked, signalApiTokenRevoked, userApiTokensRevoked } from "../events.ts";
import { composeApiTokenCreated } from "../mail/texts.ts";
import type { IdentityStore } from "../store/store.ts";
import { createApiTokenUses } from "./api-token-uses.ts";
import type { MailQueue } from "./mail-queue.ts";

/** Each new token sends a mail, and a user may make and revoke any number: a thief's first ones tell enough. */
const noticesPerHour = 10;
/** Of an answer, and of what is read of each user for it. */
const maxUsable = 200;

/** How users create, use and revoke API tokens. */
export interface ApiTokens {
  /** Makes a token of the caller, and its secret, without storing them. Throws VALIDATION_ERROR for a bad expiry. */
  draft(call: Call, request: ApiTokenRequest): { apiToken: ApiToken; secret: string };
  /**
   * Stores a token, and notifies the user. Throws INVALID_TOKEN when the caller's session has ended, CONFLICT when the
   * user has reached the limit.
   */
  add(
    call: Call,
    drafted: { apiToken: ApiToken; secret: string },
    record: IdempotencyRecord | undefined,
  ): Promise<void>;
  /** Up to `limit` tokens of the user after `before`, newest first, with their uses until now. */
  list(userId: string, limit: number, before: Cursor | undefined): Promise<ApiToken[]>;
  /** Revokes a token of the caller, given by itself or by its id. Throws API_KEY_NOT_FOUND. */
  revoke(call: Call, tokenOrId: string, record: IdempotencyRecord | undefined): Promise<void>;
  /** Revokes all tokens of the caller. */
  revokeAll(call: Call): Promise<void>;
  /**
   * Finds the token by itself or by its id, and records its use. Throws INVALID_TOKEN, also to who doesn't heed the
   * permissions that it has.
   */
  verify(by: { secret: string } | { id: string }, o: { heedsPermissions: boolean }): Promise<VerifiedApiToken>;
  /**
   * The ids of the tokens with which these users may do something in a workspace, 200 at most, in the order of the
   * users, each one's newest first.
   */
  listUsable(userIds: readonly string[], use: TokenUse): Promise<string[]>;
  /** Stores the uses that are only in memory. */
  storeUses(): Promise<void>;
}

/**
 * @param o.maxTokens how many API tokens a user may have; 0 for no limit
 * @param o.maxDays how long a token lasts at most; 0 for no limit
 */
export function createApiTokens(o: {
  store: IdentityStore;
  bus: EventBus;
  mails: MailQueue;
  publicUrl: string;
  maxTokens: number;
  maxDays: number;
  now: () => Date;
}): ApiTokens {
  const { store, bus, mails, publicUrl, maxTokens, maxDays, now } = o;
  const uses = createApiTokenUses();

  async function noticeOf({ userId, hint }: ApiToken): Promise<NewApiToken["notice"]> {
    const [user] = await store.users.find([userId], []);
    if (!user) return undefined;
    return {
      mail: mails.seal(composeApiTokenCreated({ to: user.username, publicUrl, hint })),
      budget: budget(`notices of API tokens of ${userId}`, noticesPerHour, hourMs),
    };
  }

  async function find(secret: string): Promise<VerifiedApiToken | undefined> {
    if (!isApiToken(secret)) return undefined;
    const unlimited = await store.apiTokens.find(hashApiToken(secret, { permissions: undefined }));
    return unlimited ?? store.apiTokens.find(hashApiToken(secret, { permissions: [] }));
  }

  async function storeUses(): Promise<void> {
    const recorded = uses.take();
    if (recorded.length > 0) await store.apiTokens.recordUses(recorded);
  }

  return {
    draft(call, { expiresAt, ...request }) {
      const createdAt = now();
      const secret = newApiToken();
      const apiToken = {
        ...request,
        id: newId(),
        userId: userOf(call).id,
        hint: hintOf(secret),
        expiresAt: newTokenExpiry(expiresAt, maxDays, createdAt),
        createdAt,
        lastUsedAt: undefined,
      };
      return { apiToken, secret };
    },

    async add(call, { apiToken, secret }, record) {
      const events = [apiTokenCreated(call, apiToken)];
      const notice = await noticeOf(apiToken);
      const tokenHash = hashApiToken(secret, apiToken);
      const stored = { ...apiToken, tokenHash, sessionId: userOf(call).credentialId, notice };
      const created = await store.apiTokens.create(stored, maxTokens, record, events);
      if (created === "too_many") throw tooManyApiTokens(maxTokens);
      if (created === "session_ended") throw new DomainError("INVALID_TOKEN", "The session has ended.");
      mails.wake();
    },

    async list(userId, limit, before) {
      await storeUses();
      return store.apiTokens.list(userId, limit, before);
    },

    async revoke(call, tokenOrId, record) {
      const { id: userId } = userOf(call);
      const token = await (isApiToken(tokenOrId) ? find(tokenOrId) : store.apiTokens.findById(tokenOrId));
      const revoked = token && (await store.apiTokens.revoke(userId, token.id, [apiTokenRevoked(call, token)], record));
      if (!revoked) throw new DomainError("API_KEY_NOT_FOUND", "You have no such API token.");
      signalApiTokenRevoked(bus, token.id);
    },

    async revokeAll(call) {
      const { id } = userOf(call);
      await store.apiTokens.revokeAll(id, [userApiTokensRevoked(call, id)]);
      signalApiTokenRevoked(bus, id);
    },

    async verify(by, { heedsPermissions }) {
      const found = "id" in by ? await store.apiTokens.findById(by.id) : await find(by.secret);
      if (!found || isExpired(found, now())) {
        throw new DomainError("INVALID_TOKEN", "The API token is unknown, has been revoked or has expired.");
      }
      if (found.permissions !== undefined && !heedsPermissions) {
        throw new DomainError("INVALID_TOKEN", "This server doesn't know permissions of API tokens yet.", {
          hint: "The platform is being updated. Try again later.",
        });
      }
      uses.record(found, now());
      return found;
    },

    async listUsable(userIds, use) {
      const ids: string[] = [];
      for (const userId of userIds) {
        const newest = await store.apiTokens.list(userId, maxUsable, undefined);
        ids.push(...newest.filter((token) => isUsable(token, use, now())).map(({ id }) => id));
        if (ids.length >= maxUsable) break;
      }
      return ids.slice(0, maxUsable);
    },

    storeUses,
  };
}
