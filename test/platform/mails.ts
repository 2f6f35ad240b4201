import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

/**
 * The texts of the mails that a platform has written to its folder so far, the oldest first; of those to an address if
 * one is named.
 */
export async function readMails(folder: string, to?: string): Promise<string[]> {
  // One that is still being written has another name.
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith(".eml")).toSorted();
  const mails = await Promise.all(names.map((name) => readFile(join(folder, name), "utf8")));
  return (
    mails
      .filter((mail) => to === undefined || mail.includes(`To: ${to}`))
      // A mail's quoted-printable lines are broken with "=" and hold "=" as "=3D".
      .map((mail) => mail.replace(/=\r?\n/g, "").replace(/=3D/g, "="))
  );
}

/** The token in a mail's link. */
export function tokenIn(mail = ""): string | undefined {
  return /token=([A-Za-z0-9._~-]+)/.exec(mail)?.[1];
}
