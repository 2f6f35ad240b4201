import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

/**
 * Makes a page of docs the README of a package's folder. Of links to what is beside the page, which no registry has,
 * only the text stays.
 */
export async function writeReadme(page: string, folder: string): Promise<void> {
  const text = await readFile(join(import.meta.dirname, "../docs", page), "utf8");
  await writeFile(join(folder, "README.md"), text.replace(/\[([^\]]+)\]\((?!https?:)[^)]+\)/g, "$1"));
}
