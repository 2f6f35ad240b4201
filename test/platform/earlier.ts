import { execFile } from "node:child_process";
import { mkdir, readdir, readFile, symlink } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { createTempFolder } from "@sandgate/test-support/temp-folder";

const execute = promisify(execFile);
/** The folder of the code that is under test. */
export const thisCode = join(import.meta.dirname, "../..");

/** The commit of the oldest version that this one can be upgraded from without a stop. */
async function findUpgradeFrom(): Promise<string> {
  return (await readFile(join(thisCode, "deploy/upgrade-from"), "utf8")).trim();
}

/**
 * Throws, saying what is missing, unless that version's code is in this clone's history. For `requireServer("history",
 * …)`.
 */
export async function probeEarlier(): Promise<void> {
  const commit = await findUpgradeFrom();
  await execute("git", ["cat-file", "-e", `${commit}^{commit}`], { cwd: thisCode }).catch((cause: unknown) => {
    throw new Error(`the commit of deploy/upgrade-from, ${commit}, is not in this clone`, { cause });
  });
}

/** A folder of an earlier version's code, which runs with the packages that are installed here. */
export interface EarlierCode {
  root: string;
  remove(): Promise<void>;
}

/** Unpacks the version of deploy/upgrade-from. Its workspaces import each other, not those here. */
export async function unpackEarlier(): Promise<EarlierCode> {
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const archive = join(folder, "code.tar");
  await execute("git", ["archive", "--output", archive, await findUpgradeFrom()], { cwd: thisCode });
  await execute("tar", ["--extract", "--file", archive, "--directory", folder]);
  await linkPackages(folder);
  return { root: folder, remove: removeFolder };
}

/**
 * Gives a folder of the code the packages that are installed here. Its workspaces import each other, not those here.
 */
export async function linkPackages(root: string): Promise<void> {
  const packages = join(root, "node_modules");
  await mkdir(packages);
  const installed = join(thisCode, "node_modules");
  for (const name of await readdir(installed)) {
    if (name !== "@sandgate") await symlink(join(installed, name), join(packages, name));
  }
  // npm's links to workspaces are relative, so the same ones lead to the folder's own.
  await execute("cp", ["--recursive", "--no-dereference", join(installed, "@sandgate"), packages]);
}
