import type { EventBus } from "@sandgate/kit/events/bus";
import { type EventCause, type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import {
  ApiTokenCreatedSchema,
  ApiTokenRevokedSchema,
  SessionEndedSchema,
  UserApiTokensRevokedSchema,
  UserCreatedSchema,
  UserDeletedSchema,
  UserDisabledSchema,
  UserEnabledSchema,
  UserLinkedSchema,
  UserMadeOperatorSchema,
  UserPasswordChangedSchema,
  UserPasswordResetSchema,
  UserRecoveryCodesReplacedSchema,
  UserRecoveryCodeUsedSchema,
  UserSecondFactorEnabledSchema,
  UserSecondFactorRemovedSchema,
  UserSessionsEndedSchema,
  UserSignedInSchema,
  UserUnlinkedSchema,
  UserVerifiedSchema,
} from "@sandgate/proto/identity/v1/identity_events";
import type { ApiToken } from "./domain/api-tokens.ts";

type Cause = EventCause | undefined;
/** A token whose events belong to the workspace that it is bound to. */
type EventToken = Pick<ApiToken, "id" | "userId" | "workspaceId">;

export function userCreated(cause: Cause, userId: string): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.user.created.v1",
    entityId: userId,
    entityVersion: 1,
    call: cause,
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
  made_operator: UserMadeOperatorSchema,
  disabled: UserDisabledSchema,
  enabled: UserEnabledSchema,
  sessions_ended: UserSessionsEndedSchema,
  api_tokens_revoked: UserApiTokensRevokedSchema,
  deleted: UserDeletedSchema,
};

/**
 * An event of a user that says no more than whose it is. Its version is a time, as not all changes of a user are
 * counted.
 */
function userEvent(happened: keyof typeof userSchemas): (cause: Cause, userId: string) => StagedEvent {
  return (cause, userId) =>
    stageEvent({
      subject: `sandgate.identity.user.${happened}.v1`,
      entityId: userId,
      entityVersion: Date.now(),
      call: cause,
      schema: userSchemas[happened],
      payload: { userId },
    });
}

export const userVerified = userEvent("verified");
export const userPasswordChanged = userEvent("password_changed");
export const userPasswordReset = userEvent("password_reset");
export const userSecondFactorEnabled = userEvent("second_factor_enabled");
export const userSecondFactorRemoved = userEvent("second_factor_removed");
export const userRecoveryCodeUsed = userEvent("recovery_code_used");
export const userRecoveryCodesReplaced = userEvent("recovery_codes_replaced");
export const userMadeOperator = userEvent("made_operator");
export const userDisabled = userEvent("disabled");
export const userEnabled = userEvent("enabled");
export const userSessionsEnded = userEvent("sessions_ended");
export const userApiTokensRevoked = userEvent("api_tokens_revoked");
export const userDeleted = userEvent("deleted");

/** An account at this provider signs in to the user's from now on. */
export function userLinked(cause: Cause, userId: string, issuer: string): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.user.linked.v1",
    entityId: userId,
    entityVersion: Date.now(),
    call: cause,
    schema: UserLinkedSchema,
    payload: { userId, issuer },
  });
}

/** An account at this provider doesn't sign in to the user's any more. */
export function userUnlinked(cause: Cause, userId: string, issuer: string): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.user.unlinked.v1",
    entityId: userId,
    entityVersion: Date.now(),
    call: cause,
    schema: UserUnlinkedSchema,
    payload: { userId, issuer },
  });
}

/** The event's actor is the user, with the session that begins. */
export function userSignedIn(cause: EventCause, userId: string, sessionId: string): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.user.signed_in.v1",
    entityId: userId,
    entityVersion: Date.now(),
    call: { ...cause, user: { id: userId, credential: "session", credentialId: sessionId } },
    schema: UserSignedInSchema,
    payload: { userId, sessionId },
  });
}

/** A session changes only once: version 1 is its beginning, 2 its end. */
export function sessionEnded(cause: Cause, sessionId: string, userId: string): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.session.ended.v1",
    entityId: sessionId,
    entityVersion: 2,
    call: cause,
    schema: SessionEndedSchema,
    payload: { sessionId, userId },
  });
}

export function apiTokenCreated(cause: Cause, { id, userId, workspaceId }: EventToken): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.api_token.created.v1",
    entityId: id,
    entityVersion: 1,
    workspaceId,
    call: cause,
    schema: ApiTokenCreatedSchema,
    payload: { tokenId: id, userId },
  });
}

/** A token changes only once: version 1 is its creation, 2 its end. */
export function apiTokenRevoked(cause: Cause, { id, userId, workspaceId }: EventToken): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.api_token.revoked.v1",
    entityId: id,
    entityVersion: 2,
    workspaceId,
    call: cause,
    schema: ApiTokenRevokedSchema,
    payload: { tokenId: id, userId },
  });
}

/** Notifies every facade at once; one that misses it reads the ended sessions again within a second. */
export function signalSessionsEnded(bus: EventBus, sessionIds: readonly string[]): void {
  for (const sessionId of sessionIds) bus.signal("identity.sessions.ended", sessionId);
}

/**
 * Notifies every facade at once to forget a token, or with a user's id all tokens of that user; one that misses it
 * keeps them for a second at most.
 */
export function signalApiTokenRevoked(bus: EventBus, id: string): void {
  bus.signal("identity.api_tokens.revoked", id);
}
