/**
 * A mail that is committed with what it is about. `sealed` holds the recipient and the text, which may contain a
 * secret.
 */
export interface NewMail {
  id: string;
  sealed: Uint8Array;
}

export interface DueMail extends NewMail {
  /** How often it was tried before. */
  attempts: number;
}
