type Json = unknown;
type JsonObject = Record<string, Json>;

/**
 * Parts of an OpenAPI document with references to the headers of responses and to each schema that has a title, and
 * these headers and schemas by their names. Throws when two schemas that differ have the same title.
 */
export function extractComponents<Parts extends Record<string, object | undefined>>(
  parts: Parts,
): { value: Parts; schemas: JsonObject; headers: JsonObject } {
  const schemas: JsonObject = {};
  const headers: JsonObject = {};

  function extractHeaders(given: JsonObject): JsonObject {
    Object.assign(headers, given);
    return Object.fromEntries(Object.keys(given).map((name) => [name, { $ref: `#/components/headers/${name}` }]));
  }

  function extract(value: Json): Json {
    if (Array.isArray(value)) return value.map(extract);
    if (!isObject(value)) return value;
    const extracted = Object.fromEntries(
      Object.entries(value).map(([key, part]) => {
        // What an example shows is no schema.
        if (key === "examples") return [key, part];
        return [key, key === "headers" && isObject(part) ? extractHeaders(part) : extract(part)];
      }),
    );
    const { title, description, readOnly, ...schema } = extracted;
    if (typeof title !== "string") return extracted;
    const notNull = withoutNull(schema);
    const known = schemas[title];
    if (known !== undefined && JSON.stringify(known) !== JSON.stringify(notNull)) {
      throw new Error(`two schemas have the title ${title}`);
    }
    schemas[title] = notNull;
    const reference = { $ref: `#/components/schemas/${title}` };
    return {
      ...(notNull === schema ? reference : { anyOf: [reference, { type: "null" }] }),
      ...(description !== undefined && { description }),
      ...(readOnly !== undefined && { readOnly }),
    };
  }

  // Only what is inside of the parts is replaced.
  return { value: extract(parts) as Parts, schemas, headers };
}

/** The schema of the same values but null. The schema itself if it has no null. */
function withoutNull(schema: JsonObject): JsonObject {
  const { type, enum: values } = schema;
  if (!Array.isArray(type) || !type.includes("null")) return schema;
  const [first] = type.filter((name) => name !== "null");
  return { ...schema, type: first, ...(Array.isArray(values) && { enum: values.filter((value) => value !== null) }) };
}

function isObject(value: Json): value is JsonObject {
  return typeof value === "object" && value !== null;
}
