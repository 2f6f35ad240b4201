import { randomBytes } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { DataFolder } from "./data-folder.ts";

/** The operator's first password where no setting names one. */
export interface FirstPassword {
  password: string;
  /** Deletes it; only its hash is kept from now on. */
  shown(): void;
}

/**
 * Makes the password at the first start and keeps it in a file (0600) until it was shown, so that a start which ends
 * between making the operator's account and printing the password loses nothing. Undefined at every later start.
 */
export function openFirstPassword(folder: DataFolder): FirstPassword | undefined {
  const file = folder.path("first-password");
  if (!existsSync(file)) {
    if (existsSync(folder.path("identity.sqlite"))) return undefined;
    writeFileSync(file, randomBytes(18).toString("base64url"), { mode: 0o600, flush: true });
  }
  return { password: readFileSync(file, "utf8"), shown: () => rmSync(file, { force: true }) };
}
