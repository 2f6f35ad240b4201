import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { createLogger } from "@sandgate/kit/base/logging";
import { sandboxService } from "@sandgate/sandbox";
import { cleanEngine } from "@sandgate/sandbox/clean";
import { lockName, openDataFolder } from "./data-folder.ts";
import { databaseOf, readLocalSettings } from "./settings.ts";

function print(line: string): void {
  process.stdout.write(`sandgate: ${line}\n`);
}

/** Removes what the platform of SANDGATE_DATA made on its engine and on this machine, and with `--data` that folder. */
async function clean(): Promise<void> {
  const { values } = parseArgs({ options: { data: { type: "boolean", default: false } } });
  const { settings, env } = readLocalSettings(process.env);
  const { runtime } = sandboxService.readSettings(env);
  if (runtime.startsWith("kubernetes:")) {
    throw new Error("sandboxes are pods here: remove the namespace SANDGATE_KUBERNETES_NAMESPACE of the cluster");
  }
  const root = resolve(settings.data);
  // Nothing of a folder that isn't an installation's is touched, and none is made.
  if (!existsSync(join(root, lockName))) return print(`nothing to remove: ${root} is no installation's folder`);
  const folder = openDataFolder(root);
  const logger = createLogger({ service: "clean", level: settings.logLevel });
  const { removed, kept } = await cleanEngine({ database: databaseOf(settings, folder, "sandbox"), runtime, logger });
  for (const what of removed) print(`removed ${what}`);
  // Without the folder nobody would know whose they are.
  if (kept.length > 0) throw new Error(`these are still there: ${kept.join("; ")}`);
  if (values.data) await rm(root, { recursive: true });
  folder.release();
  print(values.data ? `removed ${root}` : `the data in ${root} is kept; npm run clean -- --data removes it too`);
}

try {
  await clean();
} catch (error) {
  process.stderr.write(`sandgate: ${messageOf(error)}\n`);
  process.exitCode = 1;
}
