import { backoffMs } from "@sandgate/kit/base/backoff";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Logger } from "@sandgate/kit/base/logging";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { addMs, monotonicMs } from "@sandgate/kit/base/time";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import type { DueMail, NewMail } from "../domain/mails.ts";
import type { Mail } from "../mail/texts.ts";
import { type MailTransport, RecipientRefused } from "../mail/transports.ts";
import type { Mails } from "../store/mails.ts";

/** How long a replica that took a mail has to send it. */
const leaseMs = 60_000;
/** How often the store is checked for due mails. */
const pollMs = 5_000;
/** Mails that are sent at once. */
const batchSize = 10;

/** The backoff between attempts to send a mail. */
export const mailBackoff = { firstMs: 5_000, lastMs: 600_000 };
/**
 * How long a failure is reported that isn't followed by another: by then the mail was tried again, unless another
 * replica has sent it or it is too old.
 */
const failureMs = mailBackoff.lastMs + leaseMs;

export interface MailQueue {
  /** Seals a mail, for the transaction of the change that it is about. It has a new id unless one is given. */
  seal(mail: Mail, id?: string): NewMail;
  /** Starts sending what was committed just now. After `stop` it does nothing. */
  wake(): void;
  start(): void;
  /** Waits for the mails that are being sent; the others are sent after the next start. */
  stop(): Promise<void>;
  /** "ok", or why a mail could not be sent. A recipient whom the server refuses is no such failure. */
  state(): "ok" | string;
}

/**
 * Sends the mails in the store, each at least once: neither a failure nor a restart loses one. One whose recipient the
 * server refuses for good is dropped.
 */
export function createMailQueue(o: {
  store: { readonly mails: Mails };
  keyring: Keyring;
  transport: MailTransport;
  logger: Logger;
  now: () => Date;
  /** The source of the backoff's jitter. */
  random?: () => number;
  monotonic?: () => number;
}): MailQueue {
  const { store, keyring, transport, logger, now, monotonic = monotonicMs } = o;
  const aboutOf = (id: string) => ({ service: "identity", table: "mails", record: id });
  let failure: { message: string; at: number } | undefined;
  let polling: PeriodicTask | undefined;
  let stopped = false;
  const deliveries = new Set<Promise<void>>();

  async function deliver({ id, sealed, attempts }: DueMail): Promise<void> {
    try {
      const mail: Mail = JSON.parse(Buffer.from(keyring.open(sealed, aboutOf(id))).toString());
      await transport.send(id, mail);
    } catch (error) {
      // Anybody can name a recipient whom the server refuses. The server's answer repeats the address.
      if (error instanceof RecipientRefused) {
        const { code, isPermanent } = error;
        logger.warn({ mail: id, code }, `a mail's recipient was refused; ${isPermanent ? "dropped" : "will retry"}`);
        if (isPermanent) return store.mails.finish(id);
      } else {
        failure = { message: messageOf(error), at: monotonic() };
        logger.warn({ err: error, mail: id }, "a mail could not be sent; will retry");
      }
      await store.mails.postpone(id, addMs(now(), backoffMs(attempts + 1, mailBackoff, o.random)));
      return;
    }
    failure = undefined;
    await store.mails.finish(id);
  }

  async function deliverDue(): Promise<void> {
    while (!stopped) {
      const at = now();
      const mails = await store.mails.takeDue(at, addMs(at, leaseMs), batchSize);
      if (mails.length === 0) return;
      await Promise.all(mails.map(deliver));
    }
  }

  return {
    seal(mail, id = newId()) {
      return { id, sealed: keyring.seal(Buffer.from(JSON.stringify(mail)), aboutOf(id)) };
    },
    wake() {
      if (stopped) return;
      const delivery = deliverDue()
        .catch((error: unknown) => logger.error({ err: error }, "due mails could not be sent"))
        .finally(() => deliveries.delete(delivery));
      deliveries.add(delivery);
    },
    start() {
      polling = startPeriodicTask({ what: "send mails", everyMs: pollMs, logger, work: deliverDue });
    },
    async stop() {
      stopped = true;
      await polling?.stop();
      await Promise.all(deliveries);
      transport.close();
    },
    state: () => (failure && monotonic() - failure.at < failureMs ? failure.message : "ok"),
  };
}
