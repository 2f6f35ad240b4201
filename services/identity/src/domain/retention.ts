import { dayMs, hourMs } from "@sandgate/kit/base/time";

/**
 * How long rows are kept, in milliseconds: after their expiry or end, unless another time is named here. Then nobody
 * needs them any more.
 */
export const keptMs = {
  verifications: 0,
  passwordResets: 0,
  ssoAttempts: 0,
  pendingSecondFactors: 0,
  requestWindows: 0,
  slotLeases: 0,
  /**
   * The time counts from the creation of the mail. Its content is deleted when it is sent; the rest shows that what
   * caused it has been seen, should it be told again.
   */
  sentMails: dayMs + hourMs,
  /** The time counts from the creation of the mail. Its link has expired by then. */
  unsentMails: dayMs,
  /** Used tokens are kept too, to notice that a stolen one is presented again. */
  refreshTokens: dayMs,
  /** A session without an end counts from the expiry of its last refresh token. */
  sessions: dayMs,
  /** Owners see expired tokens in the list until then. */
  apiTokens: 30 * dayMs,
  /** The time counts from the user's last sign-in from there. */
  knownNetworks: 90 * dayMs,
} as const;
