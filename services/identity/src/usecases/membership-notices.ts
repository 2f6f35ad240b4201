import { addMs, hourMs } from "@sandgate/kit/base/time";
import { budget } from "../domain/rate-counters.ts";
import { keptMs } from "../domain/retention.ts";
import { composeMemberAdded } from "../mail/texts.ts";
import type { IdentityStore } from "../store/store.ts";
import type { MailQueue } from "./mail-queue.ts";

/** Somebody was added to a workspace. */
export interface Addition {
  /** The same however often it is told. */
  id: string;
  at: Date;
  workspaceId: string;
  userId: string;
  /** Who added them. */
  addedById: string | undefined;
}

/**
 * Older additions are no news, such as those that a new consumer is told of. As long as they are, their mail is known,
 * also where clocks differ by up to an hour: events of seven days come again when the bus was recreated.
 */
const newsMs = keptMs.sentMails - hourMs;
/** Mails an hour to one user, and because of one: nobody is flooded by others, who can add and remove them at will. */
const limits = { to: 5, because: 100 };

/** Mails a user who was added to a workspace that it is so, and how to leave. */
export function createMembershipNotices(o: {
  store: Pick<IdentityStore, "users" | "mails" | "rateCounters">;
  mails: Pick<MailQueue, "seal" | "wake">;
  publicUrl: string;
  now: () => Date;
}): (addition: Addition) => Promise<void> {
  const { store, mails, publicUrl, now } = o;

  return async ({ id, at, workspaceId, userId, addedById = "" }) => {
    if (at < addMs(now(), -newsMs)) return;
    const users = await store.users.find([userId, addedById], []);
    const [user, addedBy] = [userId, addedById].map((wanted) => users.find((each) => each.id === wanted));
    if (!user) return;
    const budgets = [
      budget(`mails about memberships to ${userId}`, limits.to, hourMs),
      budget(`mails about memberships because of ${addedById}`, limits.because, hourMs),
    ];
    if (await store.rateCounters.consumeEach(budgets, now())) return;
    const mail = composeMemberAdded({
      to: user.username,
      publicUrl,
      // Mails are sent as ASCII.
      addedBy: addedBy && /^[\x21-\x7e]+$/.test(addedBy.username) ? addedBy.username : undefined,
      workspaceId,
      userId,
    });
    await store.mails.add(userId, mails.seal(mail, id), now());
    mails.wake();
  };
}
