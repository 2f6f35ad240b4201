import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { NewMail } from "../domain/mails.ts";
import type {
  ExternalIdentity,
  FirstSignIn,
  LinkedIdentity,
  ResolvedUser,
  SsoAttempt,
} from "../domain/single-sign-on.ts";

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
  /**
   * The user whom the identity signs in (`decideExternalUser`), with the ids of the sessions that ended. Stores that
   * the link was used, and the address if it is verified.
   */
  resolveUser(identity: ExternalIdentity, first: FirstSignIn, now: Date): Promise<ResolvedUser>;
  /** The links of a user, newest first. */
  list(userId: string): Promise<LinkedIdentity[]>;
  /**
   * Removes a link of the user (`decideUnlink`), and ends the user's sessions but one, whose ids it returns. Otherwise
   * nothing happens.
   */
  unlink(
    link: { userId: string; id: string; keptSessionId: string },
    change: { noticeMail: NewMail; events: readonly StagedEvent[] },
    now: Date,
  ): Promise<string[] | "unknown" | "last">;
}
