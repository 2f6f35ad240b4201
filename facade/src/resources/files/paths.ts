import { isUtf8 } from "node:buffer";
import type { Violation } from "@sandgate/kit/base/domain-error";
import type { FastifyRequest } from "fastify";
import { sandboxIdOf } from "../sandboxes/mapping.ts";

/** The most that Linux takes. */
const maxBytes = 4_095;
/** Of either alphabet of RFC 4648. In a query a `+` that was not escaped is a space. */
const base64 = /^[A-Za-z0-9+/_ -]*={0,2}$/;

type Fields = Readonly<Record<string, unknown>>;

/** The bytes of a path that was checked, which is given as text or in base64. */
export function pathOf(fields: Fields, name = "path"): Uint8Array {
  const { [name]: text, [`${name}_base64`]: encoded } = fields;
  return typeof encoded === "string" ? decode(encoded) : Buffer.from(String(text));
}

/** The sandbox that a request names, and the path in it that its query names. */
export function placeOf({ params, query }: { params: { sandbox_id: string }; query: Fields }) {
  return { sandbox: sandboxIdOf(params.sandbox_id), path: pathOf(query) };
}

function decode(text: string): Buffer {
  return Buffer.from(text.replaceAll(" ", "+"), "base64");
}

/** What is wrong with the paths of a query, beyond their types. */
export function checkQueryPath({ query, url }: Pick<FastifyRequest, "query" | "url">): Violation[] {
  const found = checkPaths("query", query, "path");
  // The parser leaves an escaped byte that is no UTF-8 as it is, which would be another file.
  return found.length === 0 && hasBadEscape(url)
    ? [{ field: "query.path", issue: "must be UTF-8 in percent-encoding; use path_base64 for other bytes" }]
    : found;
}

/** What is wrong with the paths of these names in a query or a body, beyond their types. */
export function checkPaths(location: "query" | "body", fields: unknown, ...names: string[]): Violation[] {
  if (typeof fields !== "object" || fields === null || Array.isArray(fields)) return [];
  const given: Fields = { ...fields };
  return names.flatMap((name) => {
    const issue = issueOf(given, name);
    return issue === undefined ? [] : [{ field: `${location}.${issue.field}`, issue: issue.issue }];
  });
}

function issueOf(given: Fields, name: string): Violation | undefined {
  const inBase64 = `${name}_base64`;
  const { [name]: text, [inBase64]: encoded } = given;
  if (text === undefined && encoded === undefined) return { field: name, issue: "is required" };
  if (text !== undefined && encoded !== undefined) {
    return { field: inBase64, issue: `must not be given together with ${name}` };
  }
  const field = text === undefined ? inBase64 : name;
  const value = text ?? encoded;
  // A wrong type is reported by the schema.
  if (typeof value !== "string") return undefined;
  if (field === inBase64 && !base64.test(value)) return { field, issue: "must be base64 (RFC 4648)" };
  const bytes = pathOf(given, name);
  if (bytes.length === 0) return { field, issue: "must not be empty" };
  if (bytes.length > maxBytes) return { field, issue: `must have ${maxBytes} bytes or fewer` };
  if (bytes.includes(0)) return { field, issue: "must not contain a NUL character" };
  if (field === name && !value.isWellFormed()) return { field, issue: "must be valid Unicode" };
  return undefined;
}

function hasBadEscape(url: string): boolean {
  const query = url.slice(url.indexOf("?") + 1);
  return query.split("&").some((pair) => {
    try {
      return pair.startsWith("path=") && decodeURIComponent(pair) === "";
    } catch {
      return true;
    }
  });
}

/** The text of a path or a name, and its bytes in base64 where these aren't UTF-8. */
export function readBytes(bytes: Uint8Array): { text: string; base64: string | undefined } {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { text: buffer.toString(), base64: isUtf8(buffer) ? undefined : buffer.toString("base64") };
}
