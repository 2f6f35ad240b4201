import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

/** Secrets that a test has given a platform or got from it, to be looked for where none may be. */
export interface Canaries {
  /** `isPassword`: a secret that people choose, of which no bare hash may be anywhere either. */
  add(name: string, value: string | Uint8Array, o?: { isPassword?: boolean }): void;
  /** Names of those that are in it, in clear or in a form that anybody can turn back, apart from `allowed`. */
  findIn(text: string | Uint8Array, allowed?: readonly string[]): string[];
}

export function createCanaries(): Canaries {
  const forms: { name: string; bytes: Buffer }[] = [];
  return {
    add(name, value, { isPassword = false } = {}) {
      const bytes = Buffer.from(value);
      const texts = typeof value === "string" ? [encodeURIComponent(value), JSON.stringify(value).slice(1, -1)] : [];
      const encoded = [bytes, ...(isPassword ? [createHash("sha256").update(bytes).digest()] : [])].flatMap((each) => [
        each,
        Buffer.from(each.toString("hex")),
        ...base64Forms(each),
      ]);
      for (const form of [...encoded, ...texts.map((text) => Buffer.from(text))]) forms.push({ name, bytes: form });
    },
    findIn(text, allowed = []) {
      const bytes = Buffer.from(text);
      const found = forms.filter((form) => !allowed.includes(form.name) && bytes.includes(form.bytes));
      return [...new Set(found.map(({ name }) => name))];
    },
  };
}

/** How the bytes look within a longer text in base64 and base64url, whatever stands before and after them. */
function base64Forms(bytes: Buffer): Buffer[] {
  return [0, 1, 2].flatMap((offset) => {
    const padded = Buffer.concat([Buffer.alloc(offset), bytes]);
    // Characters that other bytes have a part in are left out.
    const first = Math.ceil((offset * 8) / 6);
    const last = Math.floor((padded.length * 8) / 6);
    return (["base64", "base64url"] as const).map((encoding) =>
      Buffer.from(padded.toString(encoding).slice(first, last)),
    );
  });
}

/** Each file below a folder, as its path in it and its bytes. */
export function filesIn(folder: string): { path: string; bytes: Buffer }[] {
  return readdirSync(folder, { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => ({ path: path.slice(folder.length + 1), bytes: readFileSync(path) }));
}

/** Each value of each table in the SQLite files of a folder, whole: in its file a long one is in pieces. */
export function valuesIn(folder: string): { column: string; value: string | Uint8Array }[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".sqlite"))
    .flatMap((name) => {
      const database = new DatabaseSync(join(folder, name), { readOnly: true });
      const tables = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all();
      const values = tables.flatMap(({ name: table }) =>
        database
          .prepare(`SELECT * FROM "${table}"`)
          .all()
          .flatMap((row) =>
            Object.entries(row).flatMap(([column, value]) =>
              typeof value === "string" || value instanceof Uint8Array
                ? [{ column: `${name} ${table}.${column}`, value }]
                : [],
            ),
          ),
      );
      database.close();
      return values;
    });
}
