// What the regular expressions of the code that runs cost. Registries, engines, nodes and tenants choose the texts, and
// one text that takes quadratic time stops the process for all others.
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { check } from "recheck";
import { expect, test } from "vitest";
import { parseAst } from "vitest/node";

interface Expression {
  file: string;
  source: string;
  flags: string;
}

interface Node {
  readonly type: string;
  readonly [property: string]: unknown;
}

const root = join(import.meta.dirname, "../..");
/** Longer than the slowest takes on a busy machine. What a check measures is steps: the time of one must not count. */
const limits = { timeout: 170_000, attackTimeout: 60_000, incubationTimeout: 60_000, seedingTimeout: 60_000 };

const expressions = [...(await expressionsOfSources()), ...(await expressionsOfContracts())];

/**
 * What repeats nothing without a limit takes linear time. The others are looked at, each once. The alternatives of an
 * expression are looked at one by one: they are tried one after the other, so together they take the sum of their times.
 */
const repeating = new Map(
  expressions
    .flatMap((each) => alternativesOf(each.source).map((source) => ({ ...each, source })))
    .filter(({ source }) => /[*+]|,\}/.test(source))
    .map((each) => [`/${each.source}/${each.flags}`, each]),
);

test("all expressions are found", () => {
  for (const [file, source] of [
    ["services/registry-client/src/registry-error.ts", String.raw`\.\d+`],
    ["services/identity/src/domain/api-tokens.ts", "^sgt_[0-9A-Za-z]{x}$"],
    ["facade/src/pipeline/base/request-context.ts", String.raw`^[\x20-\x7e]{1,255}$`],
    ["facade/src/resources/sandboxes/schemas.ts", "^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"],
    ["proto/sandgate/sandbox/v1/sandbox.proto", "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$"],
  ]) {
    expect(expressions).toContainEqual(expect.objectContaining({ file, source }));
  }
  expect(repeating.size).toBeGreaterThan(50);
});

test("the alternatives of an expression are those in no group and no class", () => {
  expect(alternativesOf(String.raw`a\|b|[|\]]c|(?:d|(e|f))+|g`)).toEqual([
    String.raw`a\|b`,
    String.raw`[|\]]c`,
    "(?:d|(e|f))+",
    "g",
  ]);
});

test.for([
  ["a repetition in a repetition", "^(?:a+)+$"],
  ["two repetitions of the same", "^bearer(?: +(.*))?$"],
  ["a search that begins again at each character", String.raw`\S*@sha256:\w+`],
  ["a search that begins again at each quote", String.raw`"(?:[^"\\]|\\.)*"(\s*:)?`],
])("%s is refused", async ([, source = ""]) => {
  expect((await check(source, "g", limits)).status).toBe("vulnerable");
});

test.for([...repeating.values()])("$source in $file takes linear time", async ({ source, flags }) => {
  expect((await check(source, flags, limits)).status).toBe("safe");
});

/** What stands between the `|` of an expression that are in no group and no class. */
function alternativesOf(source: string): string[] {
  const alternatives = [""];
  let depth = 0;
  for (const [part] of source.matchAll(/\\.|\[(?:\\.|[^\]\\])*\]|./gsu)) {
    if (part === "(") depth++;
    if (part === ")") depth--;
    if (part === "|" && depth === 0) alternatives.push("");
    else alternatives[alternatives.length - 1] += part;
  }
  return alternatives;
}

/** Literals, what `new RegExp` is given, and the patterns of schemas. */
async function expressionsOfSources(): Promise<Expression[]> {
  const sources = new Map<string, Node>();
  const isTest = /\.(?:test|fixture|contract)\.ts$/;
  for await (const file of glob("{services/*/src,facade/src,deploy}/**/*.{ts,mjs,js}", { cwd: root })) {
    if (isTest.test(file)) continue;
    sources.set(file, parseAst(await readFile(join(root, file), "utf8"), { lang: "ts" }) as unknown as Node);
  }
  const constants = [...sources].flatMap(([file, program]) =>
    nodesOf(program, "VariableDeclarator").map(({ id, init }) => ({ file, name: nameOf(id), init })),
  );

  /** The text of an expression; undefined where it isn't a constant. What a template takes from elsewhere is a word. */
  function textOf(node: Node | undefined, file: string): string | undefined {
    if (node?.type === "Literal") return String(node.value);
    if (node?.type === "TemplateLiteral") {
      const values = (node.expressions as Node[]).map((each) => textOf(each, file) ?? "x");
      const texts = (node.quasis as { value: { cooked: string } }[]).map(({ value }) => value.cooked);
      return texts.map((text, index) => text + (values[index] ?? "")).join("");
    }
    const named = constants.filter(({ name }) => node?.type === "Identifier" && name === node.name);
    const constant = named.find((each) => each.file === file) ?? named[0];
    return constant && textOf(constant.init as Node | undefined, constant.file);
  }

  return [...sources].flatMap(([file, program]) => [
    ...nodesOf(program, "Literal").flatMap(({ regex }) => {
      const { pattern: source, flags } = (regex ?? {}) as { pattern?: string; flags?: string };
      return source === undefined || flags === undefined ? [] : [{ file, source, flags }];
    }),
    ...nodesOf(program, "NewExpression")
      .filter(({ callee }) => nameOf(callee) === "RegExp")
      .map(({ arguments: given }) => {
        const [source, flags] = (given as Node[]).map((each) => textOf(each, file));
        if (source === undefined) throw new Error(`${file} makes a regular expression of what isn't known here`);
        return { file, source, flags: flags ?? "" };
      }),
    ...nodesOf(program, "ObjectExpression")
      .flatMap(({ properties }) => properties as Node[])
      .filter(({ key }) => nameOf(key) === "pattern")
      .flatMap(({ value }) => ({ file, source: textOf(value as Node, file) ?? "", flags: "" })),
  ]);
}

async function expressionsOfContracts(): Promise<Expression[]> {
  const found: Expression[] = [];
  for await (const file of glob("proto/sandgate/**/*.proto", { cwd: root })) {
    for (const [, text] of (await readFile(join(root, file), "utf8")).matchAll(/\bpattern: "((?:[^"\\]|\\.)*)"/g)) {
      found.push({ file, source: JSON.parse(`"${text}"`), flags: "" });
    }
  }
  return found;
}

/** All nodes of a type below this one. */
function nodesOf(node: unknown, type: string): Node[] {
  if (typeof node !== "object" || node === null) return [];
  const below = Object.values(node).flatMap((each) => nodesOf(each, type));
  return "type" in node && node.type === type ? [node as Node, ...below] : below;
}

function nameOf(node: unknown): unknown {
  return (node as Node | undefined)?.name;
}
