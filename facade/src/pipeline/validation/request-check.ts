import type { Violation } from "@sandgate/kit/base/domain-error";
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import type { FastifyRequest, FastifySchema } from "fastify";
import { parseMoment } from "../messages/times.ts";

/** The formats, and what to tell a client whose field does not match one. */
const formats: Record<string, { check: RegExp | ((text: string) => boolean); issue: string }> = {
  uuid: { check: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i, issue: "must be a UUID" },
  "date-time": {
    check: (text) => parseMoment(text) !== undefined,
    issue: "must be an ISO 8601 date and time, like 2026-01-31T12:00:00Z",
  },
  email: {
    // The HTML living standard's "valid e-mail address", as the contracts have it too.
    check:
      /^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$/,
    issue: "must be an e-mail address",
  },
};

/** A large body can have a great many invalid fields. */
const maxViolations = 100;

const ajv = new Ajv({ allErrors: true, verbose: true, strict: true, allowUnionTypes: true, useDefaults: true });
// What to tell a client whose field does not match a pattern.
ajv.addVocabulary(["x-issue"]);
for (const [name, { check }] of Object.entries(formats)) ajv.addFormat(name, check);

/** Where a request has fields, in the order in which their errors are reported. */
const locations = ["path", "query", "header", "body"] as const;
type Location = (typeof locations)[number];

interface ObjectSchema {
  properties: Record<
    string,
    { type?: string | string[]; maxItems?: number; maxProperties?: number; readOnly?: boolean }
  >;
}

/** The schemas of a route, by location. */
export function locationsOf(schema: FastifySchema | undefined): Partial<Record<Location, ObjectSchema>> {
  const given = {
    path: schema?.params,
    query: schema?.querystring,
    header: schema?.headers,
    body: schema?.body,
  };
  // Routes are declared with object schemas for all four locations.
  return Object.fromEntries(Object.entries(given).filter(([, part]) => part !== undefined)) as Partial<
    Record<Location, ObjectSchema>
  >;
}

/** The schemas of a route's answers, by status. */
export function responsesOf(schema: FastifySchema | undefined): Record<string, Record<string, unknown>> {
  // Routes are declared with a record of schemas by status.
  return (schema?.response ?? {}) as Record<string, Record<string, unknown>>;
}

/**
 * Compiles a route's schemas into one check of the whole request, which returns every invalid field once, by its public
 * path. Query values are converted to the types of the schema, and defaults are filled in; bodies are not converted.
 * `anyFields` ignores unknown fields of the body. Otherwise only those are ignored that the route's answer shows and
 * nobody can set, so that a record can be sent back as it was read.
 */
export function compileCheck(
  schema: FastifySchema | undefined,
  { anyFields = false } = {},
): (request: FastifyRequest) => Violation[] {
  const parts = locationsOf(schema);
  const validators = new Map<Location, ValidateFunction>();
  for (const [location, part] of Object.entries(parts)) validators.set(location as Location, ajv.compile(part));
  const { path, query, header, body } = parts;
  const headerNames = Object.keys(header?.properties ?? {});
  const knownFields = body && !anyFields ? { ...body.properties, ...readOnlyFieldsOf(schema) } : undefined;
  const queryTypes = Object.entries(query?.properties ?? {}).map(([name, { type }]) => [name, type] as const);

  return (request) => {
    const violations: Violation[] = [];
    const check = (location: Location, value: unknown) => {
      const validate = validators.get(location);
      if (validate && !validate(value)) collect(violations, location, validate.errors ?? []);
    };
    if (path) check("path", request.params);
    if (query) check("query", coerceQuery(request.query, queryTypes));
    if (header) check("header", pickHeaders(request, headerNames, violations));
    if (body) check("body", dropOversized(request.body, body, violations));
    if (knownFields) refuseUnknownFields(request.body, knownFields, violations);
    return violations;
  };
}

/** The fields of a route's successful answer that nobody can set. */
function readOnlyFieldsOf(schema: FastifySchema | undefined): ObjectSchema["properties"] {
  const answers: Partial<ObjectSchema>[] = Object.values(responsesOf(schema));
  const fields = answers.flatMap(({ properties }) => Object.entries(properties ?? {}));
  return Object.fromEntries(fields.filter(([, field]) => field.readOnly));
}

function refuseUnknownFields(body: unknown, known: object, violations: Violation[]): void {
  if (typeof body !== "object" || body === null || Array.isArray(body)) return;
  for (const name in body) {
    if (violations.length >= maxViolations) return;
    if (Object.hasOwn(known, name)) continue;
    const meant = snakeCase(name);
    const issue = Object.hasOwn(known, meant) && meant !== name ? `is unknown; the field is ${meant}` : "is unknown";
    violations.push({ field: `body.${name}`, issue });
  }
}

/**
 * The body without the fields that have too many entries, which are reported here: one error for each of the hundred
 * thousand entries that fit into a body would keep the process busy for a second.
 */
function dropOversized(body: unknown, { properties }: ObjectSchema, violations: Violation[]): unknown {
  if (typeof body !== "object" || body === null) return body;
  let reduced: object = body;
  for (const [name, { maxItems, maxProperties }] of Object.entries(properties)) {
    const value: unknown = Reflect.get(body, name);
    const most = Array.isArray(value) ? maxItems : maxProperties;
    if (most === undefined || typeof value !== "object" || value === null) continue;
    if (Object.keys(value).length <= most) continue;
    violations.push({ field: `body.${name}`, issue: `must have ${most} entries or fewer` });
    reduced = { ...reduced, [name]: Array.isArray(value) ? [] : {} };
  }
  return reduced;
}

/** Query parameters for which an empty value means the default. */
const blankQuery = new Set(["since", "until", "stream"]);

function coerceQuery(query: unknown, types: readonly (readonly [string, string | string[] | undefined])[]): unknown {
  // Fastify's parser makes a new record for every request.
  const values = query as Record<string, unknown>;
  for (const [name, type] of types) {
    const value = values[name];
    if (typeof value !== "string") continue;
    if (value === "" && blankQuery.has(name)) delete values[name];
    else if (type === "integer" && /^-?\d{1,15}$/.test(value)) values[name] = Number(value);
    else if (type === "boolean" && /^(?:true|1)$/i.test(value)) values[name] = true;
    else if (type === "boolean" && /^(?:false|0)$/i.test(value)) values[name] = false;
    else if (type === "array") values[name] = [value];
  }
  return values;
}

/** Headers for which an empty value counts as missing. */
const blankHeaders = new Set(["x-workspace-id", "last-event-id"]);

/** Those of the named headers that the request has. */
function pickHeaders(request: FastifyRequest, names: readonly string[], violations: Violation[]): unknown {
  const picked: Record<string, unknown> = {};
  for (const name of names) {
    const value = request.headers[name];
    if (value === undefined || (value === "" && blankHeaders.has(name))) continue;
    // Node joins repeated headers with a comma.
    if (typeof value !== "string" || (value.includes(",") && timesGiven(request.raw.rawHeaders, name) > 1)) {
      violations.push({ field: `header.${name}`, issue: "must be given only once" });
    } else {
      picked[name] = value;
    }
  }
  return picked;
}

function timesGiven(rawHeaders: readonly string[], name: string): number {
  return rawHeaders.filter((item, index) => index % 2 === 0 && item.toLowerCase() === name).length;
}

function collect(violations: Violation[], location: Location, errors: readonly ErrorObject[]): void {
  for (const error of errors) {
    const field = fieldOf(location, error);
    if (violations.length < maxViolations && !violations.some((known) => known.field === field)) {
      violations.push({ field, issue: issueOf(error) });
    }
  }
}

function fieldOf(location: Location, error: ErrorObject): string {
  const steps = error.instancePath
    .split("/")
    .slice(1)
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  // A repeated query parameter is one field.
  if (location === "query") steps.splice(1);
  // So is a list of choices, in which no entry has a place of its own.
  if (location === "body" && error.parentSchema?.enum && /\/items\/\w+$/.test(error.schemaPath)) steps.pop();
  if (error.keyword === "required") steps.push(String(error.params.missingProperty));
  return [location, ...steps].join(".");
}

function issueOf(error: ErrorObject): string {
  switch (error.keyword) {
    case "required":
      return "is required";
    case "type":
      if (error.data === undefined) return "is required";
      return `must be ${[error.params.type].flat().map(describeType).join(" or ")}`;
    case "format":
      return formats[String(error.params.format)]?.issue ?? "is not valid";
    case "pattern":
      return String(error.parentSchema?.["x-issue"] ?? "is not valid");
    case "enum":
      return `must be one of ${[error.params.allowedValues].flat().join(", ")}`;
    case "minimum":
      return `must be ${error.params.limit} or more`;
    case "maximum":
      return `must be ${error.params.limit} or less`;
    case "minItems":
      return error.params.limit === 1 ? "must not be empty" : `must have ${error.params.limit} entries or more`;
    case "minLength":
      return error.params.limit === 1 ? "must not be empty" : `must have ${error.params.limit} characters or more`;
    case "maxLength":
      return `must have ${error.params.limit} characters or fewer`;
    case "uniqueItems":
      return "must not have an entry twice";
    case "maxProperties":
    case "maxItems":
      return `must have ${error.params.limit} entries or fewer`;
    default:
      return error.message ?? "is not valid";
  }
}

function describeType(type: string): string {
  switch (type) {
    case "integer":
      return "an integer";
    case "string":
      return "a string";
    case "boolean":
      return "true or false";
    case "object":
      return "a JSON object";
    default:
      return type;
  }
}

/**
 * The public path of a field that a service refused. Services name fields as their contract does ("memory_mb",
 * "page.cursor"); a path that already starts with a part of the request stays as it is.
 */
export function toPublicField(field: string, schema: FastifySchema | undefined): string {
  const [head = "", ...rest] = field.split(".");
  if (locations.some((location) => location === head)) return field;
  // The fields of a page request are on one level with the others in the public API.
  const name = rest.length > 0 && head === "page" ? (rest.shift() ?? head) : head;
  const parts = locationsOf(schema);
  for (const location of ["body", "query", "path"] as const) {
    const properties = parts[location]?.properties;
    const known = properties && [name, camelCase(name)].find((candidate) => Object.hasOwn(properties, candidate));
    if (known) return [location, known, ...rest].join(".");
  }
  return parts.body ? ["body", name, ...rest].join(".") : field;
}

/** "memoryMb" -> "memory_mb" */
function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function camelCase(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
