import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SMTPServer } from "smtp-server";

export interface ReceivedMail {
  /** Unlike that of any other mail. */
  id: string;
  /** Whom the envelope names. */
  to: readonly string[];
  text: string;
}

export interface MailServer extends AsyncDisposable {
  port: number;
}

/**
 * A mail server without TLS that takes every mail, once `receive` has. On 127.0.0.1 and a free port unless given; on a
 * port that is taken it throws.
 */
export async function startMailServer(o: {
  address?: string;
  port?: number;
  receive(mail: ReceivedMail): Promise<void> | void;
}): Promise<MailServer> {
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ["STARTTLS", "AUTH"],
    onData(stream, session, done) {
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      const take = async () => {
        const to = session.envelope.rcptTo.map(({ address }) => address);
        await o.receive({ id: `${Date.now()}-${session.id}`, to, text: Buffer.concat(chunks).toString() });
      };
      stream.on("end", () => void take().then(() => done(), done));
    },
  });
  const listening = server.listen(o.port ?? 0, o.address ?? "127.0.0.1");
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    listening.once("listening", resolve);
  });
  const address = listening.address();
  if (address === null || typeof address === "string") throw new Error("the mail server has no port");
  return {
    port: address.port,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

/** For `receive`: each mail becomes a file `….eml` there. */
export function storeMailsIn(folder: string): (mail: ReceivedMail) => Promise<void> {
  return async ({ id, text }) => {
    const file = join(folder, `${id}.eml`);
    // Under another name first, so that nobody reads half a mail.
    await writeFile(`${file}.part`, text);
    await rename(`${file}.part`, file);
  };
}
