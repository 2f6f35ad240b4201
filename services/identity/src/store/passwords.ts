import type { NewPasswordReset, PasswordChange } from "../domain/passwords.ts";

/** How passwords are replaced. A new one ends the user's links and sessions. */
export interface Passwords {
  /** Adds a link for a verified user; false, and nothing happens, for any other. */
  addReset(userId: string, reset: NewPasswordReset, now: Date): Promise<boolean>;
  /** Whose link this is. Undefined for an unknown, used or expired token. */
  findReset(tokenHash: Uint8Array, now: Date): Promise<{ userId: string; username: string } | undefined>;
  /**
   * Sets the password and ends the user's other links and all sessions, whose ids it returns. Undefined, and nothing
   * happens, for an unknown, used or expired token.
   */
  reset(tokenHash: Uint8Array, change: PasswordChange, now: Date): Promise<string[] | undefined>;
  /**
   * Replaces the user's password, if it still has that hash, and ends the user's links and all sessions but one.
   * Returns the ids of the ended ones; undefined when another change came first.
   */
  change(
    user: { id: string; currentHash: string; sessionId: string },
    change: PasswordChange,
    now: Date,
  ): Promise<string[] | undefined>;
}
