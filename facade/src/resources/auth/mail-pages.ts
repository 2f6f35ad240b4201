import { createHash } from "node:crypto";
import type { App } from "../../pipeline/base/app.ts";

/** The page that a mail's link opens. */
interface MailPage {
  operationId: string;
  title: string;
  html: string;
}

// The script sends the token only with a password that is typed here: whoever opens the link, a mail scanner or
// somebody who didn't ask for the mail, activates nothing that somebody else has chosen.
const script = `
const form = document.querySelector("form");
const button = form.querySelector("button");
const password = form.querySelector("input");
const status = document.querySelector("[role=status]");
const links = document.querySelector("section");
const token = new URLSearchParams(location.search).get("token");
function end(text) {
  form.hidden = true;
  status.textContent = text;
}
function showError({ code, message, hint, details = [] }) {
  const issueOf = (name) => details.find((detail) => detail.field === "body." + name)?.issue;
  if (code === "invalid_token") end(message + " " + form.dataset.again);
  else if (issueOf("token")) end("The link is not complete. Copy all of it from the mail.");
  else status.textContent = issueOf("password") ? "The password " + issueOf("password") + "." : message + " " + hint;
}
function showLinks(identities) {
  for (const { provider, username } of identities) {
    const item = document.createElement("li");
    item.textContent = provider + ": " + username;
    links.querySelector("ul").append(item);
  }
  links.hidden = identities.length === 0;
}
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  try {
    const answer = await fetch(location.pathname, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token, password: password.value }),
    });
    const body = await answer.json();
    if (!answer.ok) showError(body.error);
    else {
      end(form.dataset.done);
      showLinks(body.identities ?? []);
    }
  } catch {
    status.textContent = "The service could not be reached. Try again.";
  }
  button.disabled = false;
});
if (!token) showError({ details: [{ field: "body.token", issue: "is missing" }] });
`;
const style =
  ":root{background:Canvas;color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:15vh auto;padding:0 1rem}button,input{font:inherit;padding:.5rem 1rem;max-width:100%;box-sizing:border-box}label{display:block;margin:1rem 0}small{display:block}[hidden]{display:none}";

const hashOf = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

/** What these pages may do: run their own script, use their own style, and call this server. */
const mailPagePolicy = `default-src 'none'; script-src ${hashOf(script)}; style-src ${hashOf(style)}; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;

function createMailPage(o: {
  operationId: string;
  /** Where the API begins, from the page's path. */
  home: string;
  title: string;
  text: string;
  button: string;
  done: string;
  again: string;
}): MailPage {
  const html = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${o.title} - Sandgate</title>
<style>${style}</style>
<main>
<h1>${o.title}</h1>
<form data-done="${o.done}" data-again="${o.again}">
<p>${o.text}</p>
<label>New password<br><input type="password" autocomplete="new-password" minlength="10" maxlength="256" required><small>At least 10 characters.</small></label>
<p><button>${o.button}</button></p>
</form>
<p role="status"></p>
<section hidden>
<p>These accounts at providers can still sign in to yours:</p>
<ul></ul>
<p>If one isn't yours, remove it: <code>GET /auth/identities</code> lists them, <code>DELETE /auth/identities/{id}</code> removes one.</p>
</section>
<p><a href="${o.home}">Sandgate</a></p>
<noscript><p>This page needs JavaScript. Without it, send the token from the link to this address with POST.</p></noscript>
</main>
<script>${script}</script>
</html>
`;
  return { operationId: o.operationId, title: o.title, html };
}

export const verificationPage = createMailPage({
  operationId: "showVerificationPage",
  home: "../",
  title: "Verify your e-mail address",
  text: "Choose the password of your account. It counts from now on, whoever asked for this mail.",
  button: "Verify my address",
  done: "Your address is verified. You can sign in now.",
  again: "If you can't sign in, ask there for another mail.",
});

export const passwordResetPage = createMailPage({
  operationId: "showPasswordResetPage",
  home: "../../",
  title: "Set a new password",
  text: "It replaces your old password, ends all of your sessions and revokes all of your API tokens.",
  button: "Set password",
  done: "Your password was changed. You can sign in now.",
  again: "Ask for another mail where you sign in.",
});

/** Serves the page that a mail's link opens, at the path to which its form sends the token. */
export function addMailPage(app: App, path: string, { operationId, title, html }: MailPage): void {
  app.get(
    path,
    {
      config: { rules: { rpc: "none" } },
      schema: {
        tags: ["Accounts"],
        operationId,
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
