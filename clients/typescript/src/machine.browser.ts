// In a browser there are no environment variables and no local files.
import { BadSettings } from "./errors.ts";
import type { StoredLogin } from "./stored-login.ts";

export function readEnvironment(_name: string): undefined {}

export async function readStoredLogin(): Promise<StoredLogin> {
  return {};
}

export async function openLocalFile(_path: string): Promise<{ isOnce: boolean; open(): ReadableStream<Uint8Array> }> {
  throw noFiles();
}

export async function writeLocalFile(_path: string, _content: AsyncIterable<Uint8Array>): Promise<never> {
  throw noFiles();
}

function noFiles(): BadSettings {
  return new BadSettings("A browser has no local files.", "Use `files.write` and `files.read`.");
}
