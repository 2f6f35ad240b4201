import type { EventBus } from "@sandgate/kit/events/bus";
import { type EventCause, type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import type { Call } from "@sandgate/kit/rpc/context";
import {
  ApiTokenCreatedSchema,
  ApiTokenRevokedSchema,
  SessionEndedSchema,
  UserCreatedSchema,
  UserDeletedSchema,
  UserDisabledSchema,
  UserEnabledSchema,
  UserLinkedSchema,
  UserPasswordChangedSchema,
  UserPasswordResetSchema,
  UserRecoveryCodesReplacedSchema,
  UserRecoveryCodeUsedSchema,
  UserSecondFactorEnabledSchema,
  UserSecondFactorRemovedSchema,
  UserSessionsEndedSchema,
  UserSignedInSchema,
  UserVerifiedSchema,
} from "@sandgate/proto/identity/v1/identity_events";

export function userCreated(userId: string, call: Call | undefined): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.user.created.v1",
    entityId: userId,
    entityVersion: 1,
    call,
    schema: UserCreatedSchema,
    payload: { userId },
  });
}

const userSchemas = {
  verified: UserVerifiedSchema,
  password_changed: UserPasswordChangedSchema,
  password_reset: UserPasswordResetSchema,
  second_factor_enabled: UserSecondFactorEnabledSchema,
  second_factor_removed: UserSecondFactorRemovedSchema,
  recovery_code_used: UserRecoveryCodeUsedSchema,
  recovery_codes_replaced: UserRecoveryCodesReplacedSchema,
  disabled: UserDisabledSchema,
  enabled: UserEnabledSchema,
  sessions_ended: UserSessionsEndedSchema,
  deleted: UserDeletedSchema,
};

/** Versions after the first are times, as not all changes of a user are counted. */
export function userChanged(
  change: keyof typeof userSchemas,
  userId: string,
  call: EventCause | undefined,
): StagedEvent {
  return stageEvent({
    subject: `sandgate.identity.user.${change}.v1`,
    entityId: userId,
    entityVersion: Date.now(),
    call,
    schema: userSchemas[change],
    payload: { userId },
  });
}

/** An account at this provider signs in to the user's from now on. */
export function userLinked(userId: string, issuer: string, call: EventCause): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.user.linked.v1",
    entityId: userId,
    entityVersion: Date.now(),
    call,
    schema: UserLinkedSchema,
    payload: { userId, issuer },
  });
}

/** Caused by the user, with the session that begins. */
export function userSignedIn(userId: string, sessionId: string, call: EventCause): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.user.signed_in.v1",
    entityId: userId,
    entityVersion: Date.now(),
    call: { ...call, user: { id: userId, credential: "session", credentialId: sessionId } },
    schema: UserSignedInSchema,
    payload: { userId, sessionId },
  });
}

/** A session changes only once: version 1 is its beginning, 2 its end. */
export function sessionEnded(sessionId: string, userId: string, call: EventCause): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.session.ended.v1",
    entityId: sessionId,
    entityVersion: 2,
    call,
    schema: SessionEndedSchema,
    payload: { sessionId, userId },
  });
}

export function apiTokenCreated(
  { id, userId, workspaceId }: { id: string; userId: string; workspaceId: string | undefined },
  call: Call,
): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.api_token.created.v1",
    entityId: id,
    entityVersion: 1,
    workspaceId,
    call,
    schema: ApiTokenCreatedSchema,
    payload: { tokenId: id, userId },
  });
}

/** A token changes only once: version 1 is its creation, 2 its end. */
export function apiTokenRevoked(tokenId: string, userId: string, call: Call): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.api_token.revoked.v1",
    entityId: tokenId,
    entityVersion: 2,
    call,
    schema: ApiTokenRevokedSchema,
    payload: { tokenId, userId },
  });
}

/** Tells every facade at once; one that misses it reads the ended sessions again within a second. */
export function signalSessionsEnded(bus: EventBus, sessionIds: readonly string[]): void {
  for (const sessionId of sessionIds) bus.signal("identity.sessions.ended", sessionId);
}

/**
 * Tells every facade at once to forget a token, or with a user's id all of that user; one that misses it keeps them for a
 * second at most.
 */
export function signalApiTokenRevoked(bus: EventBus, id: string): void {
  bus.signal("identity.api_tokens.revoked", id);
}
