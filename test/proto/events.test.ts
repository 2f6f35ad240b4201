import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const folder = join(import.meta.dirname, "../../proto");

/** The subject and the message of every event, as the comments of the contracts name them. */
function declaredEvents(): string[] {
  return globSync("sandgate/**/*_events.proto", { cwd: folder }).flatMap((path) => {
    const messages = readFileSync(join(folder, path), "utf8").matchAll(
      /(?:^\/\/ (sandgate\.\S+\.v\d+)\b.*\n)?^message (\w+)/gm,
    );
    return [...messages].map(([, subject, message]) => `${subject} ${message}`);
  });
}

test("proto/README.md lists every event once", () => {
  const rows = readFileSync(join(folder, "README.md"), "utf8").matchAll(/^\| `(\S+\.v\d+)` \| `(\w+)` \|/gm);
  const listed = [...rows].map(([, subject, message]) => `sandgate.${subject} ${message}`);
  expect(listed.sort()).toEqual(declaredEvents().sort());
});
