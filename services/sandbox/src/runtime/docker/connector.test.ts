import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const execute = promisify(execFile);

/** Has two descriptors left: enough to read files, and too few for a program's pipes. */
const withoutDescriptors = `
import { closeSync, openSync } from "node:fs";
import { createConnector } from "${new URL("connector.ts", import.meta.url)}";
const opened = [];
try {
  for (;;) opened.push(openSync("/dev/null"));
} catch {
  for (const descriptor of opened.splice(-2)) closeSync(descriptor);
}
const connector = createConnector();
const connect = () => connector.connect({ containerId: "", pid: 1, uid: 0 }, new AbortController().signal);
console.log(await connect().catch((error) => error.code));
for (const descriptor of opened) closeSync(descriptor);
console.log(await connect().catch((error) => error.message));
await connector.close();
`;

test("a want of descriptors is one failure of the connector, and the next connection starts it", async () => {
  const { stdout } = await execute("sh", [
    "-c",
    'ulimit -n 128 && exec "$0" --input-type=module --eval "$1"',
    process.execPath,
    withoutDescriptors,
  ]);
  expect(stdout).toMatch(/^EMFILE\nbarred: .*\n$/);
});
