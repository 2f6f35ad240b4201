import type { EventBus } from "@sandgate/kit/events/bus";
import { type StagedEvent, stageEvent } from "@sandgate/kit/events/outbox";
import type { Call } from "@sandgate/kit/rpc/context";
import {
  ApiTokenRevokedSchema,
  UserCreatedSchema,
  UserDeletedSchema,
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

/** The user's changes in between have no events, so that any later version does. */
export function userDeleted(userId: string, call: Call | undefined): StagedEvent {
  return stageEvent({
    subject: "sandgate.identity.user.deleted.v1",
    entityId: userId,
    entityVersion: 2,
    call,
    schema: UserDeletedSchema,
    payload: { userId },
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
