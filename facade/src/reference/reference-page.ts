import { publicErrors, publicReasons } from "@sandgate/kit/base/reasons";
import { codeOf } from "../pipeline/error-envelope.ts";
import type { OpenApiDocument, OpenApiOperation, OpenApiSchema } from "./openapi.ts";

const style = `
  :root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); --soft: color-mix(in srgb, currentColor 6%, transparent); }
  body { font: 16px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem; }
  h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; padding-bottom: .3rem; }
  h3 { margin-top: 2.2rem; }
  code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
  code { background: var(--soft); border-radius: 3px; padding: .1em .3em; }
  nav ul { columns: 2; list-style: none; padding: 0; }
  table { border-collapse: collapse; width: 100%; margin: .6rem 0; }
  th, td { border-bottom: 1px solid var(--line); padding: .35rem .5rem; text-align: left; vertical-align: top; }
  th { font-weight: 600; }
  .method { display: inline-block; font-weight: 700; min-width: 4.8em; }
  :target { background: color-mix(in srgb, gold 25%, transparent); }
`;

/** The page's policy: nothing but its own style. */
export const referencePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/** A reference of the API for people: one page, with an anchor for every operation and every error code. */
export function renderReference(document: OpenApiDocument): string {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  const tags = [...new Set(operations.map(({ operation }) => operation.tags?.[0] ?? "Other"))];
  const sections = tags.map((tag) => {
    const own = operations.filter(({ operation }) => (operation.tags?.[0] ?? "Other") === tag);
    return {
      links: own.map(
        ({ path, method, operation }) =>
          `<li><a href="#${escapeHtml(operation.operationId ?? "")}"><span class="method">${method}</span>${escapeHtml(path)}</a></li>`,
      ),
      text: `<h2>${escapeHtml(tag)}</h2>${own.map((each) => renderOperation(each, document)).join("")}`,
    };
  });
  const { title, version, description } = document.info;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escapeHtml(title)} API</title>
<style>${style}</style>
</head>
<body>
<h1>${escapeHtml(title)} API</h1>
<p>${escapeHtml(description ?? "")} Version ${escapeHtml(version)}. Base address: <code>${escapeHtml(document.servers[0]?.url ?? "")}</code>.
The same as <a href="openapi.json">OpenAPI ${escapeHtml(document.openapi)}</a>.</p>
<nav><ul>${sections.flatMap(({ links }) => links).join("")}<li><a href="#errors">Errors</a></li></ul></nav>
${sections.map(({ text }) => text).join("")}
${renderErrors()}
</body>
</html>
`;
}

function renderOperation(
  { path, method, operation }: { path: string; method: string; operation: OpenApiOperation },
  document: OpenApiDocument,
): string {
  const schemes = operation.security?.flatMap((each) => Object.keys(each)) ?? [];
  const credential =
    schemes.length === 0
      ? "No credential needed."
      : schemes.includes("apiToken")
        ? "Bearer: an API token or a session access token."
        : "Bearer: a session access token.";
  const parameters = (operation.parameters ?? []).map((parameter) =>
    renderRow(
      parameter.name,
      parameter.in,
      parameter.required === true,
      parameter.schema,
      parameter.description ?? parameter.schema?.description,
    ),
  );
  const body = resolve(operation.requestBody?.content["application/json"]?.schema, document);
  const fields = Object.entries(body?.properties ?? {}).map(([name, schema]) =>
    renderRow(name, "body", body?.required?.includes(name) === true, schema, schema.description),
  );
  const inputs = [...parameters, ...fields];
  const responses = Object.entries(operation.responses).map(
    ([status, response]) =>
      `<tr><td>${escapeHtml(status)}</td><td>${renderText(response.description ?? "")}${renderShape(response, document)}</td></tr>`,
  );
  return `<section id="${escapeHtml(operation.operationId ?? "")}">
<h3>${escapeHtml(operation.summary ?? "")}</h3>
<p><code>${method} ${escapeHtml(path)}</code></p>
${renderText(operation.description ?? "")}
<p>${credential}</p>
${inputs.length > 0 ? `<table><tr><th>Field</th><th>In</th><th>Required</th><th>Type</th><th>Notes</th></tr>${inputs.join("")}</table>` : ""}
<table><tr><th>Status</th><th>Answer</th></tr>${responses.join("")}</table>
</section>`;
}

function renderRow(
  name: string,
  place: string,
  required: boolean,
  schema: OpenApiSchema | undefined,
  note: string | undefined,
): string {
  return `<tr><td><code>${escapeHtml(name)}</code></td><td>${escapeHtml(place)}</td><td>${required ? "yes" : "no"}</td><td>${escapeHtml(describeType(schema))}</td><td>${renderInline(note ?? "")}</td></tr>`;
}

/** The fields of a success; the error envelope is described once. */
function renderShape(response: OpenApiOperation["responses"][string], document: OpenApiDocument): string {
  const given = Object.values(response.content ?? {})[0]?.schema;
  if (!given || given.$ref) return "";
  const fields = renderFields(given, document);
  return fields === "" ? "" : `<p>${fields}</p>`;
}

function renderFields(schema: OpenApiSchema, document: OpenApiDocument): string {
  return Object.entries(schema.properties ?? {})
    .map(([name, field]) => {
      const inner = resolve(field.items ?? field, document);
      const nested = inner?.properties ? ` { ${renderFields(inner, document)} }` : "";
      return `<code>${escapeHtml(name)}</code> ${escapeHtml(describeType(field))}${nested}`;
    })
    .join(", ");
}

function renderErrors(): string {
  const rows = publicReasons.map((reason) => {
    const code = codeOf(reason);
    const kind = publicErrors[reason];
    return `<tr id="${code}"><td><code>${code}</code></td><td>${kind.status}</td><td>${kind.retryable ? "yes" : "no"}</td><td>${renderInline(kind.meaning)}</td><td>${renderInline(kind.hint)}</td></tr>`;
  });
  return `<h2 id="errors">Errors</h2>
<p>Every failing request answers <code>{ "error": { "code", "message", "hint", "docs_url", "retryable", "request_id", "details" }, "detail" }</code>.
Branch on <code>error.code</code>; <code>detail</code> is a deprecated copy of the message. <code>details</code> stands on <code>validation_error</code> alone and names each bad field.</p>
<table><tr><th>Code</th><th>Status</th><th>Retryable</th><th>Meaning</th><th>What to do</th></tr>${rows.join("")}</table>`;
}

function describeType(schema: OpenApiSchema | undefined): string {
  if (!schema) return "";
  const types = [schema.type ?? []].flat();
  const range = [
    schema.minimum === undefined ? "" : `from ${schema.minimum}`,
    schema.maximum === undefined ? "" : `to ${schema.maximum}`,
    schema.minLength === undefined ? "" : `at least ${schema.minLength} characters`,
    schema.maxLength === undefined ? "" : `at most ${schema.maxLength} characters`,
    schema.default === undefined ? "" : `default ${String(schema.default)}`,
  ].filter((part) => part !== "");
  const base = schema.enum
    ? schema.enum.map(String).join(" | ")
    : types.map((type) => (type === "array" ? "list" : type)).join(" or ");
  return [base, schema.format ? `(${schema.format})` : "", range.join(", ")].filter((part) => part !== "").join(" ");
}

function resolve(schema: OpenApiSchema | undefined, document: OpenApiDocument): OpenApiSchema | undefined {
  const name = schema?.$ref?.split("/").at(-1);
  return name === undefined ? schema : document.components?.schemas?.[name];
}

function renderText(text: string): string {
  return text
    .split("\n\n")
    .filter((paragraph) => paragraph !== "")
    .map((paragraph) => `<p>${renderInline(paragraph)}</p>`)
    .join("");
}

/** Escaped text, with `…` as code. */
function renderInline(text: string): string {
  return escapeHtml(text).replace(/`([^`]+)`/g, "<code>$1</code>");
}

function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}
