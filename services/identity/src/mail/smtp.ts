import { createTransport, type NodemailerError } from "nodemailer";
import { composeMessage } from "./message.ts";
import { type MailTransport, RecipientRefused } from "./transports.ts";

/** Both ends of a slow SMTP conversation give up before the mail's lease is over. */
const smtpTimeoutMs = 15_000;

/** Replies have some hundred bytes. */
const maxReplyBytes = 64 * 1024;

/**
 * No such mailbox or host, or a mailbox that is disabled (RFC 3463). Without such a status the server may refuse the
 * sender or the client, which servers do at "RCPT TO" too, and take the mail once that is mended.
 */
const isAboutRecipient = /^\d{3}[ -]5\.(1\.([1236]|10)|2\.1)\b/;

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
      const message = await composeMessage(o.from, id, mail);
      await transport.sendMail(message).catch((error: NodemailerError) => {
        throw refusalOf(error) ?? error;
      });
    },
    close: () => transport.close(),
  };
}

function refusalOf(error: NodemailerError): RecipientRefused | undefined {
  const { command, responseCode: code, response = "", permanent = false } = error;
  // 421: the server is closing the connection, whatever the command.
  if (command !== "RCPT TO" || code === undefined || code === 421) return undefined;
  return new RecipientRefused(code, { isPermanent: permanent && isAboutRecipient.test(response), cause: error });
}
