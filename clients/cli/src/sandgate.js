#!/usr/bin/env node
// Starts the command line. Its sources need a Node.js that strips types; an older one hands over to the pinned one.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import module from "node:module";
import { fileURLToPath } from "node:url";

if (process.features.typescript) {
  // Spares every later start the stripping of types.
  module.enableCompileCache?.();
  await import("./main.ts");
} else {
  const pinned = fileURLToPath(new URL("../../../node_modules/.bin/node", import.meta.url));
  if (!existsSync(pinned)) {
    process.stderr.write(`error: Node.js ${process.versions.node} is too old; 22.18 or newer is needed.\n`);
    process.exit(1);
  }
  const { status } = spawnSync(pinned, process.argv.slice(1), { stdio: "inherit" });
  process.exit(status ?? 1);
}
