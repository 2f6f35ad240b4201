import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { fail } from "../domain/sandbox.ts";
import { sandboxStateEntered } from "../events.ts";
import { createSandbox, now, sandboxOf } from "./store.fixture.ts";
import { openSqliteStore } from "./store.sqlite.ts";

const sandboxes = 50;
const labels = 60;

const textOf = (length: number) => randomBytes(length).toString("base64url").slice(0, length);

/** All of the file, once the store is closed. */
function sizeOf(file: string): number {
  const db = new DatabaseSync(file, { readOnly: true });
  const size = db.prepare("SELECT page_count * page_size AS bytes FROM pragma_page_count, pragma_page_size").get();
  db.close();
  return Number(size?.bytes);
}

test("a sandbox with long labels takes little more on SQLite than the labels themselves", async ({ folder }) => {
  const file = join(folder, "sandbox.sqlite");
  const open = () => openSqliteStore({ file, logger: createLogger({ service: "sandbox", level: "silent" }) });
  await (await open()).close();
  const emptyBytes = sizeOf(file);
  const store = await open();
  const workspaceId = newId();
  for (let i = 0; i < sandboxes; i++) {
    const long = Object.fromEntries(Array.from({ length: labels }, () => [textOf(63), textOf(255)]));
    const sandbox = await createSandbox(store, sandboxOf({ workspaceId, labels: long }));
    const failed = fail(sandbox, { reason: "image_not_found_in_registry", message: "There is no such image." }, now());
    expect(await store.sandboxes.update(failed, sandboxStateEntered(failed))).toBe(true);
    await store.unfinished.markCleaned(sandbox.id, now());
  }
  await store.close();
  expect((sizeOf(file) - emptyBytes) / sandboxes).toBeLessThan(1.6 * labels * (63 + 255));
});
