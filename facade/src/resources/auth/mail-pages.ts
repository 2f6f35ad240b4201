import { createHash } from "node:crypto";
import type { App } from "../../pipeline/base/app.ts";

/** The page that a mail's link opens. */
interface MailPage {
  title: string;
  html: string;
}

// The script uses the token only after a click, since mail scanners open every link and the token works only once. The
// response says whether the link needs a password, and only then the page asks for one.
const script = `
const form = document.querySelector("form");
const button = form.querySelector("button");
const field = form.querySelector("label");
const password = form.querySelector("input");
const status = document.querySelector("[role=status]");
const token = new URLSearchParams(location.search).get("token");
function end(text) {
  form.hidden = true;
  status.textContent = text;
}
function showError({ code, message, hint, details = [] }) {
  const issueOf = (name) => details.find((detail) => detail.field === "body." + name)?.issue;
  if (code === "invalid_token") end(message + " " + form.dataset.again);
  else if (issueOf("token")) end("The link is not complete. Copy all of it from the mail.");
  else if (field.hidden && issueOf("password")) {
    field.hidden = false;
    password.required = true;
    password.focus();
    status.textContent = "Choose a password for your account.";
  } else status.textContent = issueOf("password") ? "The password " + issueOf("password") + "." : message + " " + hint;
}
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  try {
    const answer = await fetch(location.pathname, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(field.hidden ? { token } : { token, password: password.value }),
    });
    if (answer.ok) end(form.dataset.done);
    else showError((await answer.json()).error);
  } catch {
    status.textContent = "The service could not be reached. Try again.";
  }
  button.disabled = false;
});
if (!token) showError({ details: [{ field: "body.token", issue: "is missing" }] });
`;
const style =
  ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem}button,input{font:inherit;padding:.5rem 1rem}label{display:block;margin:1rem 0}small{display:block}[hidden]{display:none}";

const hashOf = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** What these pages may do: run their own script, use their own style, and call this server. */
const mailPagePolicy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

function createMailPage(o: {
  title: string;
  text: string;
  button: string;
  done: string;
  again: string;
  password: boolean;
}): MailPage {
  const html = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${o.title}</title>
<style>${style}</style>
<h1>${o.title}</h1>
<form data-done="${o.done}" data-again="${o.again}">
<p>${o.text}</p>
<label${o.password ? "" : " hidden"}>New password<br><input type="password" autocomplete="new-password" minlength="10" maxlength="256"${o.password ? " required" : ""}><small>At least 10 characters.</small></label>
<p><button>${o.button}</button></p>
</form>
<p role="status"></p>
<noscript><p>This page needs JavaScript. Without it, send the token from the link to this address with POST.</p></noscript>
<script>${script}</script>
</html>
`;
  return { title: o.title, html };
}

export const verificationPage = createMailPage({
  title: "Verify your e-mail address",
  text: "Click once to activate your account.",
  button: "Verify my address",
  done: "Your address is verified. You can sign in now.",
  again: "If you can't sign in, ask there for another mail.",
  password: false,
});

export const passwordResetPage = createMailPage({
  title: "Set a new password",
  text: "It replaces your old password and ends all of your sessions.",
  button: "Set password",
  done: "Your password was changed. You can sign in now.",
  again: "Ask for another mail where you sign in.",
  password: true,
});

/** Serves the page that a mail's link opens, at the path to which its form sends the token. */
export function addMailPage(app: App, path: string, { title, html }: MailPage): void {
  app.get(
    path,
    {
      config: { rules: { rpc: "none" } },
      schema: {
        tags: ["Accounts"],
        summary: `Open the page "${title}"`,
        description: "The page that the link in the mail opens. Its button sends the token with POST.",
        response: { 200: { description: "HTML.", content: { "text/html": { schema: { type: "string" } } } } },
      },
    },
    async (_request, reply) =>
      reply
        .type("text/html; charset=utf-8")
        .header("content-security-policy", mailPagePolicy)
        .serializer((text: string) => text)
        .send(html),
  );
}
