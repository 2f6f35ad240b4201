import type { DueMail, NewMail } from "../domain/mails.ts";

/** The mails that wait to be sent. Most are added by the change that they are about. */
export interface Mails {
  /** Adds a mail to a user, which is due at once, unless there was one with its id within the last hour. */
  add(userId: string, mail: NewMail, now: Date): Promise<void>;
  /** Takes up to `limit` due mails, oldest first, for the time until `leasedUntil`; nobody else gets them before. */
  takeDue(now: Date, leasedUntil: Date, limit: number): Promise<DueMail[]>;
  /** Deletes the content of a mail that was sent or dropped. */
  finish(id: string): Promise<void>;
  /** Makes a mail due again at `until`, after a failed attempt to send it. */
  postpone(id: string, until: Date): Promise<void>;
}
