import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { BadSettings } from "./errors.ts";
import { toCamelCase, toSnakeCase } from "./names.ts";

/** What `sandgate login` stores, in a file that its user alone can read. */
export interface StoredLogin {
  url?: string;
  /** An API token. */
  token?: string;
  /** The id of the workspace that was chosen. */
  workspace?: string;
  /** For what an API token can't do. */
  session?: { accessToken: string; refreshToken: string; expiresAt: string };
}

/** Where it is stored: SANDGATE_CONFIG, or `sandgate/login.json` in the folder of the user's settings. */
export function loginFile(): string {
  const { SANDGATE_CONFIG: file, XDG_CONFIG_HOME: settings } = process.env;
  return file || join(settings || join(homedir(), ".config"), "sandgate", "login.json");
}

/** Reads what was stored; empty if nothing was. Throws BadSettings when it can't be read. */
export async function readStoredLogin(): Promise<StoredLogin> {
  const file = loginFile();
  try {
    return toCamelCase<StoredLogin>(JSON.parse(await readFile(file, "utf8")));
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return {};
    throw new BadSettings(`${file} can't be read: ${String(error)}`, "Remove it and run `sandgate login` again.");
  }
}

export async function writeStoredLogin(login: StoredLogin): Promise<void> {
  const file = loginFile();
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const next = `${file}.${process.pid}`;
  await writeFile(next, `${JSON.stringify(toSnakeCase(login), null, 2)}\n`, { mode: 0o600 });
  await rename(next, file);
}

export async function removeStoredLogin(): Promise<void> {
  await rm(loginFile(), { force: true });
}
