const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** How long an unsent mail is tried: its link is dead afterwards. */
const MAIL_TRIED_MS = DAY_MS;

/** Rows whose time is before the cutoff are of no use to anybody any more. Epoch milliseconds. */
export interface Cutoffs {
  /** By expiry. */
  verifications: number;
  /** Sent mails by creation; their rows count towards an account's mails per hour. */
  sentMails: number;
  /** Mails that could not be sent, by creation. */
  unsentMails: number;
  /** By expiry. Used ones are kept until then, to notice that a stolen one is presented again. */
  refreshTokens: number;
  /** By their end, or by the expiry of their last refresh token. */
  sessions: number;
  /** By expiry; their owner sees them in the list for some time. */
  apiTokens: number;
  /** By their end. */
  requestWindows: number;
}

export function cutoffsAt(now: number): Cutoffs {
  return {
    verifications: now,
    sentMails: now - HOUR_MS,
    unsentMails: now - MAIL_TRIED_MS,
    refreshTokens: now - DAY_MS,
    sessions: now - DAY_MS,
    apiTokens: now - 30 * DAY_MS,
    requestWindows: now,
  };
}
