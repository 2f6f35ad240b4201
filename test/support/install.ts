import { access, mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";

/**
 * Installs what a suite uses into a folder, unless it is there. Test files that need it at the same moment each install
 * it beside the folder, and the first to finish gives it its name, so that none meets half of it. The path of the draft
 * must not be written into what is installed.
 */
export async function installOnce(folder: string, install: (draft: string) => Promise<unknown>): Promise<string> {
  const isThere = () => access(folder);
  try {
    await isThere();
  } catch {
    await mkdir(dirname(folder), { recursive: true });
    const draft = await mkdtemp(`${folder}.`);
    try {
      await install(draft);
      // Where another test was faster there is one by now.
      await rename(draft, folder).catch(isThere);
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
  }
  return folder;
}
