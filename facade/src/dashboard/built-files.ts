import { hash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";

/** What `npm run build:dashboard` makes. */
const defaultRoot = join(import.meta.dirname, "../../../dashboard/dist");

/** The dashboard's first page, and the tag by which browsers ask whether theirs is still the same. */
export interface FirstPage {
  html: string;
  etag: string;
  /** The digests of the scripts that stand in it, as a Content-Security-Policy has them. */
  scriptDigests: string[];
}

/** The files of the built dashboard, which may be built while the server runs. */
export interface BuiltFiles {
  /** Where its scripts and styles are, by names that change with their content. */
  assets: string;
  /** Whether there is such an asset. */
  has(name: string): Promise<boolean>;
  /** Undefined while it isn't built. `prefix` is the path prefix of the API. */
  firstPage(prefix: string): Promise<FirstPage | undefined>;
}

export function openBuiltFiles(root = defaultRoot): BuiltFiles {
  const assets = join(root, "assets");
  return {
    assets,
    has: async (name) => /^[\w-]+(?:\.[\w-]+)+$/.test(name) && (await isFile(join(assets, name))),
    async firstPage(prefix) {
      const file = join(root, "index.html");
      if (!(await isFile(file))) return undefined;
      // Everything that the page loads and calls is relative to this.
      const html = (await readFile(file, "utf8")).replace(
        '<base href="/dashboard/"',
        `<base href="${prefix}/dashboard/"`,
      );
      const scripts = [...html.matchAll(/<script>([^<]*)<\/script>/g)];
      return {
        html,
        etag: `"${hash("sha256", html, "base64url").slice(0, 22)}"`,
        scriptDigests: scripts.map(([, script = ""]) => `'sha256-${hash("sha256", script, "base64")}'`),
      };
    },
  };
}

async function isFile(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isFile() ?? false;
}
