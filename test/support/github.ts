import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

interface GithubEmail {
  email: string;
  primary: boolean;
  verified: boolean;
}

/**
 * What Sandgate uses of GitHub, as GitHub documents it: the web application flow with PKCE, and two calls of the API.
 */
export interface TestGithub {
  /** Also the address of the API. */
  url: string;
  clientId: string;
  clientSecret: string;
  user: { id: number; login: string; emails: GithubEmail[] };
  /** Answers every request of the API with this status. */
  apiStatus: number | undefined;
  /**
   * What the user's browser does: opens the address, agrees or cancels, and is sent to the callback, whose address it
   * answers.
   */
  signIn(authorizationUrl: string, o?: { cancel?: boolean }): Promise<URL>;
  stop(): Promise<void>;
}

export async function startGithub(o: { callbackUrl: string }): Promise<TestGithub> {
  const client = { clientId: "Iv1.sandgate", clientSecret: "a secret of the OAuth app" };
  const codes = new Map<string, { challenge: string }>();
  const tokens = new Set<string>();
  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const github: TestGithub = {
    ...client,
    url,
    user: { id: 1_234_567, login: "ann", emails: [{ email: "ann@example.com", primary: true, verified: true }] },
    apiStatus: undefined,
    async signIn(authorizationUrl, { cancel = false } = {}) {
      const response = await fetch(`${authorizationUrl}${cancel ? "&cancel" : ""}`, { redirect: "manual" });
      const location = response.headers.get("location");
      if (location === null) throw new Error(`${response.status} ${await response.text()}`);
      return new URL(location);
    },
    async stop() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
  return github;

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "/", url);
    if (pathname === "/login/oauth/authorize") return authorize(searchParams, response);
    if (pathname === "/login/oauth/access_token") return sendJson(response, 200, redeem(await readForm(request)));
    const known = tokens.has(request.headers.authorization?.replace(/^bearer /i, "") ?? "");
    const status = github.apiStatus ?? (known && request.headers["user-agent"] ? 200 : 401);
    if (status !== 200) return sendJson(response, status, { message: "Bad credentials" });
    if (pathname === "/user")
      return sendJson(response, 200, { id: github.user.id, login: github.user.login, email: null });
    if (pathname === "/user/emails") return sendJson(response, 200, github.user.emails);
    sendJson(response, 404, { message: "Not Found" });
  }

  function authorize(given: URLSearchParams, response: ServerResponse): void {
    if (given.get("client_id") !== client.clientId || given.get("redirect_uri") !== o.callbackUrl) {
      return void response.writeHead(404).end();
    }
    const location = new URL(o.callbackUrl);
    location.searchParams.set("state", given.get("state") ?? "");
    if (given.has("cancel")) location.searchParams.set("error", "access_denied");
    else {
      const code = randomUUID();
      codes.set(code, { challenge: given.get("code_challenge") ?? "" });
      location.searchParams.set("code", code);
    }
    response.writeHead(302, { location: location.href }).end();
  }

  function redeem(form: URLSearchParams): object {
    if (form.get("client_id") !== client.clientId || form.get("client_secret") !== client.clientSecret) {
      return { error: "incorrect_client_credentials" };
    }
    const code = form.get("code") ?? "";
    const issued = codes.get(code);
    codes.delete(code);
    const challenge = createHash("sha256")
      .update(form.get("code_verifier") ?? "")
      .digest("base64url");
    if (issued?.challenge !== challenge) {
      return { error: "bad_verification_code", error_description: "The code passed is incorrect or expired." };
    }
    const token = `gho_${randomUUID()}`;
    tokens.add(token);
    return { access_token: token, scope: "user:email", token_type: "bearer" };
  }
}

async function readForm(request: IncomingMessage): Promise<URLSearchParams> {
  let text = "";
  for await (const chunk of request.setEncoding("utf8")) text += chunk;
  return new URLSearchParams(text);
}

function sendJson(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json; charset=utf-8" }).end(JSON.stringify(body));
}
