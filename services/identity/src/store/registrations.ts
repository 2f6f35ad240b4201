import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewVerification, Registration } from "../domain/registrations.ts";

/** Users who have not verified their address yet, and the links by which they do. */
export interface Registrations {
  /**
   * Creates an unverified user. A name that is taken but unverified gets another verification with the password of this
   * registration, and keeps its own; one that is verified gets the notice (`decideRegistration`).
   */
  register(registration: Registration): Promise<"created" | "renewed" | "taken">;
  /** Adds a verification without a password for an unverified user; false, and nothing happens, for any other. */
  renew(userId: string, verification: NewVerification, now: Date): Promise<boolean>;
  /**
   * Whose link this is, and whether it was registered with a password. Undefined for an unknown, used or expired token.
   */
  findVerification(
    tokenHash: Uint8Array,
    now: Date,
  ): Promise<{ userId: string; username: string; hasPassword: boolean } | undefined>;
  /**
   * Verifies the user, sets the password (`decideVerification`) and ends the user's other links and all sessions, whose
   * ids it returns. Undefined, and nothing happens, for an unknown, used or expired token, and without any password.
   */
  verify(
    tokenHash: Uint8Array,
    passwordHash: string | undefined,
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
