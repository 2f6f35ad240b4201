import { stderr } from "node:process";
import { findEngineAddress } from "@sandgate/docker-engine/address";
import { removeInstallation } from "@sandgate/sandbox/docker-removal";
import { openTestEngine } from "@sandgate/test-support/images";

/**
 * Removes the containers of an installation and what it made on the host for them, if there is an engine. A platform
 * leaves them.
 */
export async function removeHostObjects(installationId: string): Promise<void> {
  if (
    !(await openTestEngine()
      .ping()
      .catch(() => undefined))
  )
    return;
  const { kept } = await removeInstallation({ url: findEngineAddress(process.env), installationId, images: [] });
  // Nobody else can mend it.
  for (const what of kept) stderr.write(`still there: ${what}\n`);
}
