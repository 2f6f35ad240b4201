import { readFile } from "node:fs/promises";
import { join } from "node:path";

/** The blocks of a page of docs/ that are in a language. */
export async function blocksOf(page: string, language: string): Promise<string[]> {
  const text = await readFile(join(import.meta.dirname, "../../docs", page), "utf8");
  return text
    .split(`\`\`\`${language}\n`)
    .slice(1)
    .map((block) => block.slice(0, block.indexOf("```")));
}
