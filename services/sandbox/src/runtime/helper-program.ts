import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { brotliDecompress } from "node:zlib";

const decompress = promisify(brotliDecompress);

/** The program that runs in sandboxes. */
export interface HelperProgram {
  bytes: Buffer;
  /** Of its bytes, in hex. */
  sha256: string;
}

/** Reads the committed build for an architecture as engines name it (`x86_64`, `aarch64`), as Go or as Node.js does. */
export async function readHelperProgram(architecture: string): Promise<HelperProgram> {
  const name = { x86_64: "amd64", amd64: "amd64", x64: "amd64", aarch64: "arm64", arm64: "arm64" }[architecture];
  if (name === undefined) throw new Error(`There is no helper for machines of the architecture ${architecture}.`);
  const bytes = await decompress(await readFile(new URL(`../../helper/dist/helper-${name}.br`, import.meta.url)));
  return { bytes, sha256: createHash("sha256").update(bytes).digest("hex") };
}
