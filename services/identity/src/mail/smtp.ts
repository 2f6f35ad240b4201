import { createTransport } from "nodemailer";
import { composeMessage } from "./message.ts";
import type { MailTransport } from "./transports.ts";

/** Both ends of a slow SMTP conversation give up before the mail's lease is over. */
const smtpTimeoutMs = 15_000;

/** Replies have some hundred bytes. */
const maxReplyBytes = 64 * 1024;

/** Sends each mail to the server of this URL (smtp[s]://user:password@host:port). */
export function createSmtpTransport(o: { url: string; from: string }): MailTransport {
  const transport = createTransport({
    url: o.url,
    connectionTimeout: smtpTimeoutMs,
    greetingTimeout: smtpTimeoutMs,
    socketTimeout: smtpTimeoutMs,
    maxResponseSize: maxReplyBytes,
  });
  return {
    async send(id, mail) {
      await transport.sendMail(await composeMessage(o.from, id, mail));
    },
    close: () => transport.close(),
  };
}
