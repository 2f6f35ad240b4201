import { publicErrors, publicReasons } from "@sandgate/kit/base/reasons";
import type { ApiReferenceConfiguration } from "@scalar/fastify-api-reference";
import { codeOf } from "../pipeline/errors/envelope.ts";
import { stateReasons } from "../pipeline/errors/state-reasons.ts";

/** Everything that would call an address outside of this server is off; the page's policy would refuse it too. */
const referenceOptions: Partial<ApiReferenceConfiguration> = {
  withDefaultFonts: false,
  telemetry: false,
  hideClientButton: true,
  showDeveloperTools: "never",
  agent: { disabled: true },
  mcp: { disabled: true },
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
export function renderErrors(): string {
  const rows = publicReasons.map((reason) => {
    const code = codeOf(reason);
    const { status, retryable, meaning, hint } = publicErrors[reason];
    return `<tr id="${code}"><td><code>${code}</code></td><td>${status}</td><td>${retryable ? "yes" : "no"}</td><td>${renderText(meaning)}</td><td>${renderText(hint)}</td></tr>`;
  });
  const ends = Object.entries(stateReasons).map(
    ([reason, { meaning, hint }]) =>
      `<tr id="sandbox-${reason}"><td><code>${reason}</code></td><td>${renderText(meaning)}</td><td>${renderText(hint)}</td></tr>`,
  );
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sandgate API: errors</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem; }
  code { font-family: ui-monospace, monospace; font-size: .9em; }
  table { border-collapse: collapse; width: 100%; }
  th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 18%, transparent); padding: .35rem .5rem; text-align: left; vertical-align: top; }
  :target { background: color-mix(in srgb, gold 25%, transparent); }
</style>
<h1>Errors</h1>
<p>Every error response has the body <code>{ "error": { "code", "message", "hint", "docs_url", "retryable", "request_id", "details" }, "detail" }</code>.
Branch on <code>error.code</code>; <code>detail</code> is a deprecated copy of the message. Only <code>validation_error</code> has <code>details</code>, which names each invalid field.</p>
<table>
<tr><th>Code</th><th>Status</th><th>Retryable</th><th>Meaning</th><th>What to do</th></tr>
${rows.join("\n")}
</table>
<h2>Why a sandbox ended</h2>
<p>The <code>state_reason</code> of a sandbox that is stopping, stopped or failed.</p>
<table>
<tr><th>Reason</th><th>Meaning</th><th>What to do</th></tr>
${ends.join("\n")}
</table>
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
