// The types of the TypeScript client, made from the OpenAPI document. Run it to write them.
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { openTestPlatform } from "@sandgate/facade/test-platform";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { installNodeTools } from "../openapi-tools.ts";

type Json = unknown;
type JsonObject = Record<string, Json>;

/** Where the client has them. */
export const apiTypesFile = join(import.meta.dirname, "../../clients/typescript/src/api.ts");

/** The API as the facade describes it. */
export async function readApi(): Promise<JsonObject> {
  const platform = await openTestPlatform();
  const document: JsonObject = (await platform.app.inject("/openapi.json")).json();
  await platform.close();
  return document;
}

/** Makes the types of the API, with the names that the client has for fields. */
export async function makeApiTypes(): Promise<string> {
  const document = await readApi();
  const { path: folder, remove } = await createTempFolder();
  try {
    const [from, to] = [join(folder, "openapi.json"), join(folder, "api.ts")];
    await writeFile(from, JSON.stringify(forClient(document)));
    const tool = join(await installNodeTools(), "node_modules/.bin/openapi-typescript");
    await promisify(execFile)(tool, [from, "-o", to, "--default-non-nullable", "false", "--alphabetize"]);
    return (await readFile(to, "utf8")).replace(/^\/\*\*[\s\S]*?\*\/\n/, header);
  } finally {
    await remove();
  }
}

const header = "// Made from the OpenAPI document: `npm run generate:client`.\n\n";

/** The parts that the client's types are made from. */
function forClient(document: JsonObject): JsonObject {
  const { paths, components } = document as { paths: JsonObject; components: { schemas: JsonObject } };
  const operations = Object.entries(paths).map(([path, methods]) => [
    path,
    mapValues(methods as JsonObject, (operation) => withoutRest(operation as JsonObject)),
  ]);
  return {
    openapi: document.openapi,
    info: document.info,
    paths: Object.fromEntries(operations),
    components: { schemas: toClientNames(components.schemas) },
  };
}

interface Parameter {
  in: string;
  name: string;
}

/** An operation with what the client says and reads: no headers, no answers that are errors, no explanations. */
function withoutRest({ parameters = [], requestBody, responses }: JsonObject): JsonObject {
  const kept = (parameters as Parameter[]).filter((parameter) => parameter.in !== "header");
  const answers = Object.entries(responses as Record<string, JsonObject>).filter(([status]) => Number(status) < 400);
  return {
    parameters: kept.map((parameter) => ({
      ...parameter,
      name: parameter.in === "query" ? toCamelCase(parameter.name) : parameter.name,
    })),
    ...(requestBody !== undefined && { requestBody: toClientNames(requestBody) }),
    responses: Object.fromEntries(
      answers.map(([status, { content }]) => [
        status,
        { description: "", ...(content !== undefined && { content: toClientNames(content) }) },
      ]),
    ),
  };
}

/** Schemas whose fields have the client's names. */
function toClientNames(value: Json): Json {
  if (Array.isArray(value)) return value.map(toClientNames);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => key !== "examples")
      .map(([key, part]) => {
        if (key === "properties") {
          const named = Object.entries(part).map(([name, schema]) => [toCamelCase(name), toClientNames(schema)]);
          return [key, Object.fromEntries(named)];
        }
        if (key === "required" && Array.isArray(part)) return [key, part.map(toCamelCase)];
        return [key, toClientNames(part)];
      }),
  );
}

const toCamelCase = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

function mapValues(given: JsonObject, change: (value: Json) => Json): JsonObject {
  return Object.fromEntries(Object.entries(given).map(([key, value]) => [key, change(value)]));
}

if (import.meta.main) await writeFile(apiTypesFile, await makeApiTypes());
