import { dayMs, hourMs } from "@sandgate/kit/base/time";

/** How long rows are kept, in milliseconds after the time that is named here. Then nobody needs them any more. */
export const keptMs = {
  /** After their expiry. */
  verifications: 0,
  /** After their expiry. */
  passwordResets: 0,
  /** After their expiry. */
  ssoAttempts: 0,
  /** After their expiry. */
  pendingSecondFactors: 0,
  /** After their creation. Their content is deleted when they are sent. */
  sentMails: hourMs,
  /** Mails that could not be sent, after their creation: by then their link has expired. */
  unsentMails: dayMs,
  /** After their expiry. Used ones are kept until then, to notice that a stolen one is presented again. */
  refreshTokens: dayMs,
  /** After their end, or the expiry of their last refresh token. */
  sessions: dayMs,
  /** After their expiry; their owner sees them in the list until then. */
  apiTokens: 30 * dayMs,
  /** After their end. */
  requestWindows: 0,
  /** After the user's last sign-in from there. */
  knownNetworks: 90 * dayMs,
  /** After their end. */
  slotLeases: 0,
} as const;
