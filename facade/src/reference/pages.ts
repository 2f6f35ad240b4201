import { publicErrors, publicReasons } from "@sandgate/kit/base/reasons";
import type { ApiReferenceConfiguration } from "@scalar/fastify-api-reference";
import { codeOf } from "../pipeline/errors/envelope.ts";
import { stateReasons } from "../pipeline/errors/state-reasons.ts";

/** Scalar's own colours are too pale to read easily, and its blocks of code scroll, but not by keyboard. */
const theme = `
.light-mode {
  --scalar-color-3: #6b6b6b;
  --scalar-color-accent: #0069b4;
  --scalar-color-green: #00714a;
  --scalar-color-orange: #b34700;
  --scalar-color-red: #c4001a;
}
.dark-mode { --scalar-color-3: #9a9a9a; --scalar-color-red: #ff6b6b; }
.scalar-app .markdown pre code, .scalar-app .markdown pre code * { overflow-wrap: anywhere; white-space: pre-wrap; }
`;

/** Everything that would call an address outside of this server is off; the page's policy would refuse it too. */
const referenceOptions: Partial<ApiReferenceConfiguration> = {
  withDefaultFonts: false,
  telemetry: false,
  hideClientButton: true,
  showDeveloperTools: "never",
  agent: { disabled: true },
  mcp: { disabled: true },
  customCss: theme,
};

/** What the reference may do: run the scripts that carry `nonce`, style itself, and call the API at `origin`. */
export function referencePolicy(nonce: string, origin: string): string {
  return [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    "style-src 'unsafe-inline'",
    "img-src 'self' data:",
    `connect-src 'self' ${origin}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}

/**
 * The reference of the API, which its script makes from the OpenAPI document. `path` is the path prefix of this server.
 */
export function renderReference(path: string, nonce: string): string {
  const options = JSON.stringify({ ...referenceOptions, url: `${path}/openapi.json` });
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sandgate API</title>
<link rel="icon" href="data:,">
<div id="reference"></div>
<noscript>The reference needs JavaScript. The same as an OpenAPI document: <a href="${path}/openapi.json">openapi.json</a>.</noscript>
<script nonce="${nonce}" src="${path}/docs/reference.js"></script>
<script nonce="${nonce}">Scalar.createApiReference("#reference", ${options})</script>
</html>
`;
}

export const errorsPolicy =
  "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Every error code and every reason of a sandbox's end, with an anchor for each. */
export function renderErrors(url: string): string {
  const codes = publicReasons.map((reason) => {
    const code = codeOf(reason);
    const { status, retryable, meaning, hint } = publicErrors[reason];
    const facts = retryable ? `${status}, retryable` : status;
    return `<section id="${code}"><h3><code>${code}</code> (${facts})</h3><p>${renderText(meaning)} ${renderText(hint)}</p></section>`;
  });
  const ends = Object.entries(stateReasons).map(
    ([reason, { meaning, hint }]) =>
      `<section id="sandbox-${reason}"><h3><code>${reason}</code></h3><p>${renderText(meaning)} ${renderText(hint)}</p></section>`,
  );
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Errors - Sandgate API</title>
<style>
  :root { background: Canvas; color-scheme: light dark; }
  body { font: 16px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; overflow-wrap: anywhere; padding: 1.5rem; }
  code { font-family: ui-monospace, monospace; font-size: .9em; }
  section { border-top: 1px solid color-mix(in srgb, currentColor 18%, transparent); padding: .75rem .5rem; }
  section h3, section p { font-size: 1em; margin: 0; }
  :target { background: color-mix(in srgb, gold 25%, transparent); }
</style>
<main>
<p><a href="${url}/docs">Sandgate API</a></p>
<h1>Errors</h1>
<p>Every error response has the body <code>{ "error": { "code", "message", "hint", "docs_url", "retryable", "request_id", "details" }, "detail" }</code>.
Branch on <code>error.code</code>; <code>detail</code> is a deprecated copy of the message. <code>validation_error</code> has <code>details</code>, which name each invalid field, and so has <code>invalid_credentials</code> about a code of the second factor.</p>
<h2>Codes</h2>
<p>Each with its HTTP status. A retryable one may succeed later with an identical request.</p>
${codes.join("\n")}
<h2>Why a sandbox ended</h2>
<p>The <code>state_reason</code> of a sandbox that is stopping, stopped or failed.</p>
${ends.join("\n")}
</main>
</html>
`;
}

/** Escaped text, with `…` as code. */
function renderText(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replace(/`([^`]+)`/g, "<code>$1</code>");
}
