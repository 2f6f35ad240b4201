import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewVerification, Registration } from "../domain/registrations.ts";

/** Users who have not verified their address yet, and the links by which they do. */
export interface Registrations {
  /**
   * Creates an unverified user. One who has the name already and isn't verified gets another link, one who is gets the
   * notice, and both stay as they are (`decideRegistration`).
   */
  register(registration: Registration): Promise<"created" | "renewed" | "taken">;
  /** Adds a link for an unverified user; false, and nothing happens, for any other. */
  renew(userId: string, verification: NewVerification, now: Date): Promise<boolean>;
  /** Whose link this is. Undefined for an unknown, used or expired token. */
  findVerification(tokenHash: Uint8Array, now: Date): Promise<{ userId: string; username: string } | undefined>;
  /**
   * Verifies the user, sets the password and ends the user's other links and all sessions, whose ids it returns.
   * Undefined, and nothing happens, for an unknown, used or expired token.
   */
  verify(
    tokenHash: Uint8Array,
    passwordHash: string,
    now: Date,
    events: readonly StagedEvent[],
  ): Promise<string[] | undefined>;
  /** Up to `limit` users who registered before that time, never verified their address and have no link that works. */
  listAbandoned(registeredBefore: Date, now: Date, limit: number): Promise<string[]>;
  /**
   * Deletes a user who is still unverified and has no link that works; false for any other, and for the last operator.
   */
  deleteAbandoned(userId: string, events: readonly StagedEvent[], now: Date): Promise<boolean>;
}
