import type { ExternalIdentity, FirstSignIn, ResolvedUser, SsoAttempt } from "../domain/single-sign-on.ts";

export interface SingleSignOn {
  addAttempt(attempt: SsoAttempt): Promise<void>;
  /**
   * Removes the attempt, so that it can be taken once. Undefined for an unknown, taken or expired one, or one of
   * another browser.
   */
  takeAttempt(
    attempt: Pick<SsoAttempt, "stateHash" | "browserHash" | "provider">,
    now: Date,
  ): Promise<{ redirectUri: string } | undefined>;
  /** The user whom the identity signs in (`decideExternalUser`), with the ids of the sessions that ended. */
  resolveUser(identity: ExternalIdentity, first: FirstSignIn, now: Date): Promise<ResolvedUser>;
}
