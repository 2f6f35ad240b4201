import { machine } from "node:os";
import { readHelperProgram } from "@sandgate/sandbox/helper-program";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";

/** Puts an image with the helper where the platform's own has it into a registry, and answers its reference. */
export async function pushHelperImage(host: string): Promise<string> {
  const { bytes } = await readHelperProgram(machine());
  const image = await makeImage({ command: ["/app/helper"], programs: [], executables: { "app/helper": bytes } });
  return pushImage(image, { host, repository: "platform/helper" });
}
