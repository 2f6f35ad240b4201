import { mkdir, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import type { Logger } from "@sandgate/kit/base/logging";
import { addMs, dayMs } from "@sandgate/kit/base/time";
import type { Mail } from "./texts.ts";

export interface MailTransport {
  /**
   * Sends a mail, or throws: `RecipientRefused` when that is the recipient's fault alone. The id is the same when a mail
   * is sent again.
   */
  send(id: string, mail: Mail): Promise<void>;
  close(): void;
}

/** A mail server that answers doesn't take mails to this recipient, with this code (RFC 5321, 4.2). */
export class RecipientRefused extends Error {
  readonly code: number;
  /** Whether it won't take one later either. */
  readonly isPermanent: boolean;

  constructor(code: number, o: { isPermanent: boolean; cause: unknown }) {
    super("The mail server refuses the recipient.", { cause: o.cause });
    this.code = code;
    this.isPermanent = o.isPermanent;
  }
}

/** Mails in files are kept this long; their links expire earlier. */
const fileKeptMs = 7 * dayMs;

/** Writes each mail to a file of its own, readable by its owner alone, and logs the path. */
export function createFileTransport(o: { folder: string; from: string; logger: Logger }): MailTransport {
  const folder = resolve(o.folder);
  return {
    async send(id, mail) {
      // This loads nodemailer, which takes some 14 MB. Many installations never send a mail.
      const { composeMessage } = await import("./message.ts");
      const { raw } = await composeMessage(o.from, id, mail);
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const file = join(folder, `${id}.eml`);
      // Written under another name and renamed, so that whoever lists the folder never reads half a mail.
      await writeFile(`${file}.part`, raw, { mode: 0o600 });
      await rename(`${file}.part`, file);
      o.logger.info({ file }, "a mail was written to a file, since no SMTP server is set");
    },
    close: () => undefined,
  };
}

/** Removes mails in files that have been kept long enough, including those from before an SMTP server was set. */
export async function sweepMailFiles(folder: string, now: Date): Promise<void> {
  const names = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
  for (const name of names.filter((each) => /\.eml(\.part)?$/.test(each))) {
    const file = join(folder, name);
    // Another process on the same folder may have removed it.
    const written = (await stat(file).catch(() => undefined))?.mtime;
    if (written && written < addMs(now, -fileKeptMs)) await rm(file, { force: true });
  }
}
