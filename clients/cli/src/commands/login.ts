import { hostname } from "node:os";
import {
  ApiKeyNotFound,
  Forbidden,
  InvalidCredentials,
  InvalidToken,
  Sandgate,
  type SessionTokens,
  Unauthenticated,
} from "@sandgate/client";
import { loginFile, readStoredLogin, removeStoredLogin, writeStoredLogin } from "@sandgate/client/stored-login";
import { named } from "../args.ts";
import { openSession } from "../context.ts";
import { printOne, say } from "../output.ts";
import { ask, readPassword, readStdin } from "../prompt.ts";
import { setUp } from "../setup.ts";

const tokenDays = 90;
const dayMs = 86_400_000;

export async function login(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { values, positionals } = setUp(args, signal, { username: { type: "string" } });
  named(positionals);
  const { url: asked, workspace } = values;
  // A token of the environment is no sign-in.
  const anonymous = new Sandgate({ url: asked, token: () => undefined });
  const url = await anonymous.url();
  const chosen = workspace === undefined ? {} : { workspace };
  if (!process.stdin.isTTY && values.username === undefined) {
    const token = (await readStdin(signal)).trim();
    const { username } = await new Sandgate({ url, token }).account.get({ signal });
    await writeStoredLogin({ url, token, ...chosen });
    say(`Signed in to ${url} as ${username}.`);
    return 0;
  }
  if (process.stdin.isTTY) say(`Sign in to ${url}`);
  const username = values.username ?? (await ask("Email", { signal }));
  const password = await readPassword(signal);
  const tokens = await signIn(anonymous, { username, password, signal });
  const session = new Sandgate({ url, token: tokens.accessToken });
  // A session ends when it isn't used for half an hour, so an API token stands for the login.
  const { token } = await session.apiTokens.create({
    description: `sandgate login on ${hostname()}`.slice(0, 100),
    expiresAt: new Date(Date.now() + tokenDays * dayMs).toISOString(),
    signal,
  });
  const expiresAt = new Date(Date.now() + tokens.expiresIn * 1000).toISOString();
  const { accessToken, refreshToken } = tokens;
  await writeStoredLogin({ url, token, session: { accessToken, refreshToken, expiresAt }, ...chosen });
  say(`Signed in to ${url} as ${username}. The token is stored in ${loginFile()} for ${tokenDays} days.`);
  return 0;
}

async function signIn(
  sandgate: Sandgate,
  o: { username: string; password: string; signal: AbortSignal },
): Promise<SessionTokens> {
  try {
    return await sandgate.sessions.create(o);
  } catch (error) {
    const needsCode = error instanceof InvalidCredentials && error.details.some(({ field }) => field === "body.otp");
    if (!needsCode || !process.stdin.isTTY) throw error;
    return sandgate.sessions.create({ ...o, otp: await ask("Authentication code", o) });
  }
}

export async function logout(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals } = setUp(args, signal, {});
  named(positionals);
  const { token, session, url } = await readStoredLogin();
  if (token === undefined) {
    say("You are not signed in.");
    return 0;
  }
  try {
    if (session) {
      const own = await openSession({ ...context, sandgate: new Sandgate({ url }), options: { url } });
      await own.apiTokens.delete(token, { signal }).catch((error: unknown) => {
        // It was revoked before.
        if (!(error instanceof ApiKeyNotFound)) throw error;
      });
      const { session: last } = await readStoredLogin();
      await own.sessions.signOut(last?.refreshToken ?? session.refreshToken, { signal });
    } else {
      say("The token itself is still valid; whoever made it can revoke it.");
    }
  } catch (error) {
    const hasEnded = [InvalidToken, Unauthenticated, Forbidden].some((kind) => error instanceof kind);
    if (!hasEnded) throw error;
    say("The session has ended, so the token could not be revoked. Revoke it on the page of API tokens.");
  }
  await removeStoredLogin();
  say(`Signed out of ${url}.`);
  return 0;
}

export async function whoami(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals } = setUp(args, signal, {});
  named(positionals);
  const { sandgate, format } = context;
  const [account, url, workspaceId] = await Promise.all([
    sandgate.account.get({ signal }),
    sandgate.url(),
    sandgate.workspaceId({ signal }),
  ]);
  const workspace = await sandgate.workspaces.get(workspaceId, { signal });
  await printOne({ ...account, url, workspace }, format, {
    name: ({ username }) => username,
    columns: [
      { title: "user", of: ({ username }) => username },
      { title: "url", of: () => url },
      { title: "workspace", of: () => `${workspace.name} (${workspace.id})` },
      { title: "role", of: () => account.role ?? workspace.role },
      { title: "credential", of: ({ credential }) => credential },
      { title: "operator", of: ({ isOperator }) => (isOperator ? "yes" : "no") },
    ],
  });
  return 0;
}
