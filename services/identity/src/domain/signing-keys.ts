import { addMs, dayMs } from "@sandgate/kit/base/time";

export interface StoredKey {
  /** The `kid` of session tokens. */
  id: string;
  /** `session` keys sign access tokens; the `refresh` key derives the successors of refresh tokens. */
  use: "session" | "refresh";
  /** A public JWK as JSON; empty for a symmetric key. */
  publicJwk: string;
  sealed: Uint8Array;
  createdAt: Date;
}

/** A key signs for this long before another is created. */
export const keyLifeMs = 90 * dayMs;
/** A new key is published for this long before it signs, so that every facade knows it by then. */
export const settlingMs = 10 * 60_000;
/** A replaced key stays published well beyond the expiry of the last token it signed. */
const removalMs = dayMs;

/** Whether it is time for another key: there is none, or the newest has reached its age. */
export function needsNewKey(keys: readonly Pick<StoredKey, "createdAt">[], now: Date): boolean {
  return keys.every((key) => addMs(key.createdAt, keyLifeMs) <= now);
}

/** The newest key that every facade knows by now, else the oldest. */
export function pickSigningKey<K extends Pick<StoredKey, "createdAt">>(keys: readonly K[], now: Date): K | undefined {
  const newestFirst = keys.toSorted((a, b) => b.createdAt.getTime() - a.createdAt.getTime());
  return newestFirst.find((key) => addMs(key.createdAt, settlingMs) <= now) ?? newestFirst.at(-1);
}

/** Keys whose successor has signed for so long that every token of theirs has expired. */
export function findOutdatedKeys<K extends Pick<StoredKey, "createdAt">>(keys: readonly K[], now: Date): K[] {
  return keys.filter((key) =>
    keys.some((other) => other.createdAt > key.createdAt && addMs(other.createdAt, settlingMs + removalMs) <= now),
  );
}
