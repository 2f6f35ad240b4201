import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as baseTest } from "vitest";

/** A folder of its own below the system's temporary one. */
export interface TempFolder extends AsyncDisposable {
  path: string;
  remove(): Promise<void>;
}

export async function createTempFolder(): Promise<TempFolder> {
  const path = await mkdtemp(join(tmpdir(), "sandgate-"));
  const remove = () => rm(path, { recursive: true, force: true });
  return { path, remove, [Symbol.asyncDispose]: remove };
}

/** Vitest's `test` with the fixture `folder`: an empty folder that is removed after the test. */
// biome-ignore lint/correctness/noEmptyPattern: Vitest reads from the pattern which fixtures this one needs
export const test = baseTest.extend("folder", async ({}, { onCleanup }) => {
  const folder = await createTempFolder();
  onCleanup(folder.remove);
  return folder.path;
});
