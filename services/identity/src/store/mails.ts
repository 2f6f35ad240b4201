import type { DueMail } from "../domain/mails.ts";

/** The mails that wait to be sent. They are added by the change that they are about. */
export interface Mails {
  /** Takes up to `limit` due mails, oldest first, for the time until `leasedUntil`; nobody else gets them before. */
  takeDue(now: Date, leasedUntil: Date, limit: number): Promise<DueMail[]>;
  /** Deletes the content of a mail that was sent. */
  finish(id: string): Promise<void>;
  /** Makes a mail due again at `until`, after a failed attempt to send it. */
  postpone(id: string, until: Date): Promise<void>;
}
