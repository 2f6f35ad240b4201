import { createHash } from "node:crypto";

// Uses the token only after a click: mail scanners open every link, and the token can be used only once.
const script = `
const button = document.querySelector("button");
const status = document.querySelector("[role=status]");
const token = new URLSearchParams(location.search).get("token");
button.addEventListener("click", async () => {
  button.disabled = true;
  try {
    const answer = await fetch(location.pathname, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token }),
    });
    const body = await answer.json();
    status.textContent = answer.ok ? "Your address is verified. You can sign in now." : body.error.message + " " + body.error.hint;
    button.hidden = answer.ok;
  } catch {
    status.textContent = "The service could not be reached. Try again.";
  }
  button.disabled = false;
});
`;
const style =
  "body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem}button{font:inherit;padding:.5rem 1rem}";

const hashOf = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** What the page may do: run its own script, use its own style, and call this server. */
export const verificationPolicy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

/** The page that a verification mail's link opens. */
export const verificationPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Verify your e-mail address</title>
<style>${style}</style>
<h1>Verify your e-mail address</h1>
<p>Click once to activate your account.</p>
<p><button type="button">Verify my address</button></p>
<p role="status"></p>
<noscript><p>This page needs JavaScript. Without it, send the token from the link to this address with POST.</p></noscript>
<script>${script}</script>
</html>
`;
