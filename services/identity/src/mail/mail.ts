import { mkdir, rename, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Logger } from "@sandgate/kit/base/logging";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import { createTransport } from "nodemailer";
import type { DueMail, IdentityStore, NewMail } from "../store/store.ts";

export interface Mail {
  to: string;
  subject: string;
  text: string;
}

/** `publicUrl` is the platform's address without a slash at its end. */
export function composeVerification(o: { to: string; publicUrl: string; token: string }): Mail {
  return {
    to: o.to,
    subject: "Confirm your address for Sandgate",
    text: `Somebody, most likely you, registered this address with Sandgate.
Confirm it within 24 hours with this link:

${o.publicUrl}/auth/verify-email?token=${o.token}

A program sends the token in the body of POST /auth/verify-email.

If it wasn't you, ignore this mail: nothing happens without the link.
`,
  };
}

export function composeNameTaken(o: { to: string; publicUrl: string }): Mail {
  return {
    to: o.to,
    subject: "You have a Sandgate account already",
    text: `Somebody, most likely you, tried to register this address with Sandgate
once more. It has an account already, and nothing was changed.

Sign in with the password you have: ${o.publicUrl}
`,
  };
}

export interface MailTransport {
  /** Sends a mail, or throws. The id is the same when a mail is sent again. */
  send(id: string, mail: Mail): Promise<void>;
  close(): void;
}

/** Both ends of a slow SMTP conversation give up before the mail's lease is over. */
const SMTP_TIMEOUT_MS = 15_000;
const LEASE_MS = 60_000;

const composer = createTransport({ streamTransport: true, buffer: true, newline: "unix" });

/** The message id is the mail's own, so that a receiver can drop a periodicTask. */
async function composeMessage(from: string, id: string, mail: Mail) {
  const { envelope, message } = await composer.sendMail({ from, ...mail, messageId: `<${id}@sandgate>` });
  const [header = ""] = message.toString().split("\n\n", 1);
  // nodemailer breaks lines over 76 characters with quoted-printable. The texts are ASCII with lines far below 998
  // characters, so 7bit is right as well (RFC 2045, 2.7) and leaves a link in one piece for whoever reads the source.
  const plain = header.replace(/^Content-Transfer-Encoding:.*$/m, "Content-Transfer-Encoding: 7bit");
  return { envelope, raw: `${plain}\n\n${mail.text}` };
}

export function createSmtpTransport(o: { url: string; from: string }): MailTransport {
  const transport = createTransport({
    url: o.url,
    connectionTimeout: SMTP_TIMEOUT_MS,
    greetingTimeout: SMTP_TIMEOUT_MS,
    socketTimeout: SMTP_TIMEOUT_MS,
  });
  return {
    async send(id, mail) {
      await transport.sendMail(await composeMessage(o.from, id, mail));
    },
    close: () => transport.close(),
  };
}

/** Writes each mail into a file of its own, readable by its owner alone, and logs where it is. */
export function createFileTransport(o: { folder: string; from: string; logger: Logger }): MailTransport {
  const folder = resolve(o.folder);
  return {
    async send(id, mail) {
      const { raw } = await composeMessage(o.from, id, mail);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const file = join(folder, `${id}.eml`);
      // Written beside and renamed, so that whoever lists the folder never reads half a mail.
      await writeFile(`${file}.part`, raw, { mode: 0o600 });
      await rename(`${file}.part`, file);
      o.logger.info({ file }, "a mail was written to a file, as no SMTP server is set");
    },
    close: () => undefined,
  };
}

/** Doubles from 5 seconds to 10 minutes. */
export function retryDelayMs(attempts: number): number {
  return Math.min(5_000 * 2 ** attempts, 600_000);
}

export interface MailQueue {
  /** Makes what a transaction stores with the change that the mail is about. */
  seal(mail: Mail): NewMail;
  /** Sends what was committed just now; returns at once. After `stop` it does nothing. */
  wake(): void;
  start(): void;
  /** Waits for the mails on their way; the others are sent after the next start. */
  stop(): Promise<void>;
  /** "ok", or why the last mail could not be sent. */
  state(): "ok" | string;
}

/** Sends the mails that stand in the store, at least once each: a failure or a restart loses none. */
export function createMailQueue(o: {
  store: Pick<IdentityStore, "takeDueMails" | "finishMail" | "postponeMail">;
  keyring: Keyring;
  transport: MailTransport;
  logger: Logger;
  now: () => number;
}): MailQueue {
  const { store, keyring, transport, logger, now } = o;
  const place = (id: string) => ({ service: "identity", table: "mails", record: id });
  let state: "ok" | string = "ok";
  let periodicTask: PeriodicTask | undefined;
  let stopped = false;
  const awake = new Set<Promise<void>>();

  async function deliver({ id, sealed, attempts }: DueMail): Promise<void> {
    try {
      const mail: Mail = JSON.parse(Buffer.from(keyring.open(sealed, place(id))).toString());
      await transport.send(id, mail);
    } catch (error) {
      state = messageOf(error);
      logger.warn({ err: error, mail: id }, "a mail could not be sent; it is tried again later");
      await store.postponeMail(id, now() + retryDelayMs(attempts));
      return;
    }
    state = "ok";
    await store.finishMail(id);
  }

  async function deliverDue(): Promise<void> {
    while (!stopped) {
      const mails = await store.takeDueMails(now(), now() + LEASE_MS, 10);
      if (mails.length === 0) return;
      await Promise.all(mails.map(deliver));
    }
  }

  return {
    seal(mail) {
      const id = newId(now());
      return { id, sealed: keyring.seal(Buffer.from(JSON.stringify(mail)), place(id)) };
    },
    wake() {
      if (stopped) return;
      const delivery = deliverDue()
        .catch((error: unknown) => logger.error({ err: error }, "the mail queue can't be read"))
        .finally(() => awake.delete(delivery));
      awake.add(delivery);
    },
    start() {
      periodicTask = startPeriodicTask({ what: "send mails", everyMs: 5_000, logger, work: deliverDue });
    },
    async stop() {
      stopped = true;
      await periodicTask?.stop();
      await Promise.all(awake);
      transport.close();
    },
    state: () => state,
  };
}
