import { readFileSync } from "node:fs";
import { settingNames } from "./setting-names.ts";
import { isWebAddress, trimEndSlashes } from "./web-addresses.ts";

/** The definition of one setting, from which it is read and listed. */
export interface Setting<T> {
  /** The environment variable. */
  name: string;
  kind: "text" | "integer" | "flag" | "list" | "choice" | "secret";
  doc: string;
  /** The default as it would be written in the environment; undefined if there is none. */
  default: string | undefined;
  required: boolean;
  /** What a value must be, in error messages and tables: "a whole number from 0 to 65535". */
  expects: string;
  /** Returns the value, or undefined if `text` is not one. */
  parse(text: string): T | undefined;
}

export type SettingDefinitions = Record<string, Setting<unknown>>;
export type SettingValues<D extends SettingDefinitions> = {
  readonly [K in keyof D]: D[K] extends Setting<infer T> ? T : never;
};

/** The error of bad settings; its one line names all of them. */
export class SettingsError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(`Settings: ${problems.join("; ")}`);
    this.name = "SettingsError";
    this.problems = problems;
  }
}

interface Options<T> {
  doc: string;
  default?: T;
  /** The setting may be left out; its value is then undefined. */
  optional?: true;
}
type Value<T, O> = O extends { optional: true } ? T | undefined : T;

/** Returns the definitions, with their exact types. */
export function defineSettings<D extends SettingDefinitions>(definitions: D): D {
  return definitions;
}

interface TextOptions extends Options<string> {
  /** Whether a value is accepted. Every value is accepted unless set. */
  accepts?(value: string): boolean;
  /** What is accepted, for the error message. */
  expects?: string;
}

/** A text, or only what `accepts` allows. */
export function text<const O extends TextOptions>(name: string, o: O): Setting<Value<string, O>> {
  return textSetting("text", name, o);
}

/** An http or https address. Its value is as URLs are written (WHATWG URL), without slashes at its end. */
export function webAddress<const O extends Options<string>>(name: string, o: O): Setting<Value<string, O>> {
  return setting<string, O>("text", name, o, o.default, "an http or https address", (value) =>
    isWebAddress(value) ? trimEndSlashes(new URL(value).href) : undefined,
  );
}

/** A whole number from `min` to `max`. The name of a duration ends in its unit: `_SECONDS`, `_MS`. */
export function integer<const O extends Options<number> & { min?: number; max?: number }>(
  name: string,
  o: O,
): Setting<Value<number, O>> {
  const min = o.min ?? 0;
  const max = o.max ?? Number.MAX_SAFE_INTEGER;
  const range = o.max === undefined ? `of ${min} or more` : `from ${min} to ${max}`;
  return setting<number, O>("integer", name, o, o.default?.toString(), `a whole number ${range}`, (value) => {
    const number = /^-?\d{1,16}$/.test(value) ? Number(value) : Number.NaN;
    return number >= min && number <= max ? number : undefined;
  });
}

/** A boolean: true, 1, on or yes; false, 0, off or no. */
export function flag<const O extends Options<boolean>>(name: string, o: O): Setting<Value<boolean, O>> {
  return setting<boolean, O>("flag", name, o, o.default?.toString(), "true or false", (value) => {
    if (["true", "1", "on", "yes"].includes(value)) return true;
    return ["false", "0", "off", "no"].includes(value) ? false : undefined;
  });
}

/** Values separated by commas. Spaces around them are ignored. */
export function list<const O extends Options<readonly string[]>>(
  name: string,
  o: O,
): Setting<Value<readonly string[], O>> {
  return setting<readonly string[], O>("list", name, o, o.default?.join(","), "values separated by commas", (value) =>
    value
      .split(",")
      .map((item) => item.trim())
      .filter((item) => item !== ""),
  );
}

/** One of the given texts. */
export function choice<const C extends readonly string[], const O extends Options<C[number]>>(
  name: string,
  choices: C,
  o: O,
): Setting<Value<C[number], O>> {
  const expects = `one of ${choices.join(", ")}`;
  return setting<C[number], O>("choice", name, o, o.default, expects, (value) =>
    choices.find((item) => item === value),
  );
}

/** A secret: the value of NAME, or the content of the file that NAME_FILE names, without the newline at its end. */
export function secret<const O extends TextOptions>(name: string, o: O): Setting<Value<string, O>> {
  return textSetting("secret", name, o);
}

function textSetting<const O extends TextOptions>(
  kind: "text" | "secret",
  name: string,
  o: O,
): Setting<Value<string, O>> {
  const { accepts = () => true, expects = "text" } = o;
  return setting<string, O>(kind, name, o, o.default, expects, (value) => (accepts(value) ? value : undefined));
}

/** Reads the settings' values. Throws a SettingsError that names every missing or bad setting and shows no secret. */
export function readSettings<D extends SettingDefinitions>(definitions: D, env: NodeJS.ProcessEnv): SettingValues<D> {
  const problems: string[] = [];
  const values = Object.entries(definitions).map(([key, definition]) => {
    const { value, problem } = readSetting(definition, env);
    if (problem) problems.push(problem);
    return [key, value];
  });
  if (problems.length > 0) throw new SettingsError(problems);
  // Each entry was parsed by the definition of its key.
  return Object.fromEntries(values) as SettingValues<D>;
}

/** Names of the tests' settings, which their processes hand on to the platforms that they start. */
const ofTests = /^SANDGATE_(?:REQUIRE$|(?:TEST|CONFORMANCE|BENCH|FAULT)_)/;

/** The variables that look like settings and that no process reads, such as one with a typing error. */
export function unknownSettings(env: NodeJS.ProcessEnv): string[] {
  return Object.keys(env).filter(
    (name) => name.startsWith("SANDGATE_") && !settingNames.has(name) && !ofTests.test(name),
  );
}

function readSetting(definition: Setting<unknown>, env: NodeJS.ProcessEnv): { value?: unknown; problem?: string } {
  const { name, expects } = definition;
  let given = env[name]?.trim() || undefined;
  const file = definition.kind === "secret" ? env[`${name}_FILE`] : undefined;
  if (file) {
    if (given !== undefined) return { problem: `${name} and ${name}_FILE are both set` };
    try {
      given = readFileSync(file, "utf8").replace(/\r?\n$/, "");
    } catch {
      return { problem: `${name}_FILE names a file that can't be read (${file})` };
    }
    if (given === "") return { problem: `${name}_FILE names an empty file (${file})` };
  }
  const source = given ?? definition.default;
  if (source === undefined) return definition.required ? { problem: `${name} is missing (${expects})` } : {};
  const value = definition.parse(source);
  if (value !== undefined) return { value };
  return { problem: `${name} must be ${expects}${definition.kind === "secret" ? "" : `, not "${source}"`}` };
}

function setting<T, O extends { doc: string; optional?: true }>(
  kind: Setting<T>["kind"],
  name: string,
  o: O,
  fallback: string | undefined,
  expects: string,
  parse: (text: string) => T | undefined,
): Setting<Value<T, O>> {
  const base = { name, kind, doc: o.doc, default: fallback, required: fallback === undefined && !o.optional, expects };
  // `Value` adds undefined only for a setting that may be left out, which `readSetting` returns without parsing.
  return { ...base, parse } as Setting<Value<T, O>>;
}
