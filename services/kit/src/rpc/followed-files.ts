import { readFile } from "node:fs/promises";
import { messageOf } from "../base/domain-error.ts";
import type { Logger } from "../base/logging.ts";

/** How soon a changed file takes effect. */
const rereadEveryMs = 2_000;

/**
 * Reads and parses files, and parses them again whenever one changes, until it is closed. Files are polled rather than
 * watched, since mounted secrets change by swapping links. An unusable change is logged, and the last good state stays
 * in use. `onChange` is called with each later state. Throws if the files can't be used at first.
 */
export async function followFiles<T>(o: {
  /** What the files are, in messages: "key file". */
  what: string;
  files: readonly string[];
  logger: Logger;
  parse(texts: readonly string[]): Promise<T> | T;
  onChange?(current: T): void;
  /** How often the files are read; 2 s unless set. */
  rereadEveryMs?: number | undefined;
}): Promise<{ current(): T; close(): void }> {
  const { what, files, logger } = o;
  const names = files.join(", ");
  const read = () => Promise.all(files.map((file) => readFile(file, "utf8")));
  let texts: string[];
  let current: T;
  try {
    texts = await read();
    current = await o.parse(texts);
  } catch (cause) {
    throw new Error(`The ${what} ${names} can't be used: ${messageOf(cause)}`, { cause });
  }
  let refused: string | undefined;
  const reread = async () => {
    try {
      const found = await read();
      if (found.every((text, index) => text === texts[index])) {
        refused = undefined;
        return;
      }
      current = await o.parse(found);
      texts = found;
      refused = undefined;
      o.onChange?.(current);
      logger.info({ file: names }, `the ${what} has changed and is in use`);
    } catch (error) {
      const message = messageOf(error);
      if (refused !== message) logger.error({ file: names, err: error }, `the changed ${what} can't be used`);
      refused = message;
    }
  };
  const timer = setInterval(reread, o.rereadEveryMs ?? rereadEveryMs).unref();
  return { current: () => current, close: () => clearInterval(timer) };
}
