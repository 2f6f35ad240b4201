import { test as baseTest } from "vitest";
import { createTempFolder } from "./temp-folder.ts";

/** Vitest's `test` with the fixture `folder`: an empty folder that is removed after the test. */
// biome-ignore lint/correctness/noEmptyPattern: Vitest reads from the pattern which fixtures this one needs
export const test = baseTest.extend("folder", async ({}, { onCleanup }) => {
  const folder = await createTempFolder();
  onCleanup(folder.remove);
  return folder.path;
});
