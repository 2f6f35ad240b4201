// The records of the Python client, made from the OpenAPI document. Run it to write them.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { readApi } from "./api-types.ts";

interface Schema {
  $ref?: string;
  type?: string | readonly string[];
  enum?: readonly string[];
  anyOf?: readonly Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  required?: readonly string[];
  description?: string;
}
interface Media {
  content?: Record<string, { schema: Schema }>;
}
interface Operation {
  requestBody?: Media;
  responses: Record<string, Media>;
}

/** Where the client has them. */
export const pythonRecordsFile = join(import.meta.dirname, "../../clients/python/src/sandgate/records.py");

/** These stand beside classes of the client, or are the better name. */
const names: Readonly<Record<string, string>> = {
  Sandbox: "SandboxRecord",
  Process: "ProcessRecord",
  Account: "AccountRecord",
  SessionTokens: "SignedIn",
  SessionTokensTokens: "SessionTokens",
  Terminal: "TerminalSize",
};
/** Methods of a dictionary, which a field may not hide. */
const taken = new Set(["clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update"]);
const longestLine = 120;

/** Makes the records and the bodies of requests as the facade describes them. */
export async function makePythonRecords(): Promise<string> {
  const { paths, components } = (await readApi()) as {
    paths: Record<string, Record<string, Operation>>;
    components: { schemas: Record<string, Schema> };
  };
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.values(methods).map((operation) => ({ path, operation })),
  );
  const answered = operations.flatMap(({ operation }) =>
    Object.entries(operation.responses)
      .filter(([status]) => Number(status) < 400)
      .flatMap(([, answer]) => refOf(answer)),
  );
  // What sandboxes take has arguments of its own.
  const sent = operations
    .filter(({ path }) => !path.startsWith("/sandboxes"))
    .flatMap(({ operation }) => refOf(operation.requestBody));
  const isPage = (name: string) => "next_cursor" in (components.schemas[name]?.properties ?? {});
  const pages = answered.filter(isPage).flatMap((name) => refsIn(components.schemas[name] ?? {}));
  const records = reach(components.schemas, [...answered.filter((name) => !isPage(name)), ...pages]);
  const bodies = reach(components.schemas, sent).filter((name) => !records.includes(name));
  const describeAll = (schemaNames: readonly string[], base: string) =>
    schemaNames.flatMap((name) => describe(components.schemas, name, components.schemas[name] ?? {}, base));
  const parts = [...describeAll(records, "Record"), ...describeAll(bodies, "TypedDict, total=False")].toSorted();
  // What is no class is used where it is read, so it stands first.
  const isClass = (part: string) => part.startsWith("class ");
  const aliases = parts.filter((part) => !isClass(part)).join("\n");
  return `${header}${aliases}\n\n\n${parts.filter(isClass).join("\n\n\n")}\n`;
}

const header = `"""Made from the OpenAPI document: \`npm run generate:client\`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, TypedDict

from ._record import Record

if TYPE_CHECKING:
    from typing_extensions import Required

`;

const isObject = (value: unknown): value is object => typeof value === "object" && value !== null;

/** The names of all schemas that a part refers to. */
function refsIn(part: unknown): string[] {
  if (!isObject(part)) return [];
  const { $ref } = part as Schema;
  return typeof $ref === "string" ? [$ref.split("/").at(-1) ?? ""] : Object.values(part).flatMap(refsIn);
}

function refOf(media: Media | undefined): string[] {
  return refsIn(media?.content?.["application/json"]?.schema);
}

/** Those that are named, and all that they refer to, by name. */
function reach(schemas: Record<string, Schema>, start: readonly string[]): string[] {
  const found = new Set<string>();
  const visit = (name: string) => {
    if (found.has(name)) return;
    found.add(name);
    for (const next of refsIn(schemas[name])) visit(next);
  };
  for (const name of start) visit(name);
  return [...found].toSorted();
}

const nameOf = (schema: string) => names[schema] ?? schema;

/** The text of a class with those of the objects in it, or of an alias. */
function describe(schemas: Record<string, Schema>, schema: string, given: Schema, base: string): string[] {
  const { properties, required = [] } = given;
  const name = nameOf(schema);
  if (properties === undefined) return [foldAlias(name, typeOf(given))];
  const isRecord = base === "Record";
  const inner: string[] = [];
  const nested: string[] = [];
  const fields = Object.entries(properties).flatMap(([field, part]) => {
    if (taken.has(field)) throw new Error(`${name}.${field} would hide a method of a dictionary.`);
    const own = `${schema}${field.charAt(0).toUpperCase()}${field.slice(1)}`;
    if (part.properties) inner.push(...describe(schemas, own, part, base));
    const record = part.properties ? own : refsIn(part).find((ref) => schemas[ref]?.properties);
    if (record !== undefined) nested.push(`"${field}": "${nameOf(record)}"`);
    const type = part.properties ? nameOf(own) : typeOf(part);
    const note = part.description?.split("\n")[0];
    return [
      ...(note === undefined ? [] : fold(note)),
      `    ${field}: ${mark(type, isRecord, required.includes(field))}`,
    ];
  });
  if (isRecord && nested.length > 0) fields.unshift(`    _nested: ClassVar = {${nested.join(", ")}}`);
  return [...inner, `class ${name}(${base}):\n${fields.join("\n")}`];
}

/** A field that a record lacks reads as None; one that a request needs says so. */
function mark(type: string, isRecord: boolean, isNeeded: boolean): string {
  if (isRecord) return isNeeded || type.endsWith("None") ? type : `${type} | None`;
  return isNeeded ? `Required[${type}]` : type;
}

function typeOf(schema: Schema): string {
  const { $ref, type, enum: values, anyOf, items, additionalProperties } = schema;
  if ($ref !== undefined) return nameOf($ref.split("/").at(-1) ?? "");
  if (anyOf) return anyOf.map(typeOf).join(" | ");
  if (values) return `Literal[${values.map((value) => JSON.stringify(value)).join(", ")}]`;
  if (Array.isArray(type)) return type.map((each) => typeOf({ ...schema, type: each })).join(" | ");
  if (type === "array") return `list[${typeOf(items ?? {})}]`;
  if (type === "object")
    return `dict[str, ${isObject(additionalProperties) ? typeOf(additionalProperties) : "object"}]`;
  const simple: Readonly<Record<string, string>> = {
    string: "str",
    integer: "int",
    number: "float",
    boolean: "bool",
    null: "None",
  };
  return simple[String(type)] ?? "object";
}

/** A comment, on as many lines as it needs. */
function fold(text: string): string[] {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = lines.at(-1) ?? "";
    if (line.length + word.length + "    #:  ".length > longestLine) lines.push(word);
    else lines[lines.length - 1] = line === "" ? word : `${line} ${word}`;
  }
  return lines.map((line) => `    #: ${line}`);
}

function foldAlias(name: string, type: string): string {
  const line = `${name} = ${type}`;
  if (line.length <= longestLine) return line;
  const [, start = "", values = ""] = /^(\w+\[)(.*)\]$/.exec(type) ?? [];
  return `${name} = ${start}\n${values
    .split(", ")
    .map((value) => `    ${value},\n`)
    .join("")}]`;
}

if (import.meta.main) await writeFile(pythonRecordsFile, await makePythonRecords());
