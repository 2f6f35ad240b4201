import { createTransport } from "nodemailer";
import type { Mail } from "./texts.ts";

const composer = createTransport({ streamTransport: true, buffer: true, newline: "unix" });

/** The mail as it is sent. Its message id is made of the mail's own, so that a receiver can drop a duplicate. */
export async function composeMessage(from: string, id: string, mail: Mail) {
  const { envelope, message } = await composer.sendMail({ from, ...mail, messageId: `<${id}@sandgate>` });
  const [header = ""] = message.toString().split("\n\n", 1);
  // nodemailer breaks lines over 76 characters with quoted-printable. The texts are ASCII with lines far below 998
  // characters, so 7bit is right as well (RFC 2045, section 2.7) and keeps a link in one piece for whoever reads the
  // source.
  const plain = header.replace(/^Content-Transfer-Encoding:.*$/m, "Content-Transfer-Encoding: 7bit");
  return { envelope, raw: `${plain}\n\n${mail.text}` };
}
