import { setImmediate as nextTurn } from "node:timers/promises";
import type { UnfinishedSandbox, UnfinishedSandboxes } from "../store/sandboxes.ts";

const pageSize = 200;

/** All sandboxes that have not ended or are not cleaned, read a page at a time. */
export async function* readUnfinished(
  unfinished: Pick<UnfinishedSandboxes, "list">,
): AsyncGenerator<UnfinishedSandbox> {
  for (let afterId = ""; ; ) {
    const page = await unfinished.list({ limit: pageSize, afterId });
    yield* page;
    const last = page.at(-1);
    if (!last) return;
    afterId = last.id;
    // Some databases answer at once, so no other work would get its turn until all records were read.
    await nextTurn();
  }
}

/** Ids of the images of these sandboxes, whose containers exist or may still be created. */
export async function findPinnedImages(unfinished: Pick<UnfinishedSandboxes, "list">): Promise<Set<string>> {
  const ids = new Set<string>();
  for await (const { pinnedReference } of readUnfinished(unfinished)) {
    if (pinnedReference !== undefined) ids.add(pinnedReference);
  }
  return ids;
}
