const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** How long rows are kept after the time that is named, in milliseconds. Then they are of no use to anybody any more. */
export const KEPT_MS = {
  /** After their expiry. */
  verifications: 0,
  /** After their creation; they count towards an account's mails per hour. */
  sentMails: HOUR_MS,
  /** Mails that could not be sent, after their creation: their link is dead then. */
  unsentMails: DAY_MS,
  /** After their expiry. Used ones are kept until then, to notice that a stolen one is presented again. */
  refreshTokens: DAY_MS,
  /** After their end, or the expiry of their last refresh token. */
  sessions: DAY_MS,
  /** After their expiry; their owner sees them in the list for some time. */
  apiTokens: 30 * DAY_MS,
  /** After their end. */
  requestWindows: 0,
} as const;

/** Rows whose time is before the cutoff have been kept long enough. Epoch milliseconds. */
export type Cutoffs = Readonly<Record<keyof typeof KEPT_MS, number>>;

export function cutoffsAt(now: number): Cutoffs {
  const { verifications, sentMails, unsentMails, refreshTokens, sessions, apiTokens, requestWindows } = KEPT_MS;
  return {
    verifications: now - verifications,
    sentMails: now - sentMails,
    unsentMails: now - unsentMails,
    refreshTokens: now - refreshTokens,
    sessions: now - sessions,
    apiTokens: now - apiTokens,
    requestWindows: now - requestWindows,
  };
}
