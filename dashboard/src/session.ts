import { ConnectionFailed, SandgateError, type TokenProvider } from "@sandgate/client";
import { discardUnsaved, hasUnsaved } from "./unsaved.ts";

/** Whether somebody is signed in. The access token is in this module's memory alone, and the refresh token in a cookie. */
export type SessionStatus = "unknown" | "signed-out" | "signed-in";

interface AccessToken {
  value: string;
  expiresAt: number;
}

/** A token is replaced this long before its end, for requests that are under way then. */
const leewayMs = 30_000;
const keepAliveMs = 60_000;
/** Tells other tabs; what it carries is no secret. */
const channel = new BroadcastChannel("sandgate-session");

let status: SessionStatus = "unknown";
let token: AccessToken | undefined;
/** The id of the user who signed in here last. */
let owner: string | undefined;
let renewal: Promise<void> | undefined;
const listeners = new Set<() => void>();

function become(next: SessionStatus): void {
  if (next !== "signed-in") token = undefined;
  if (next === status) return;
  status = next;
  for (const listener of listeners) listener();
}

channel.onmessage = ({ data }: MessageEvent<{ userId: string | null }>) => {
  if (data.userId === null) become("signed-out");
  // What this tab shows belongs to somebody else, or to nobody.
  else if (data.userId !== owner) location.reload();
  else if (token === undefined) renewSession().catch(() => location.reload());
};

/** The dashboard's own endpoints; all other requests are the client's. */
async function request(method: string, path: string, body?: object): Promise<Response> {
  const answer = await fetch(new URL(path, document.baseURI), {
    method,
    credentials: "same-origin",
    ...(body && { headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
  }).catch((cause: unknown) => {
    throw new ConnectionFailed("The server can't be reached.", { cause, hint: "Check the connection, and try again." });
  });
  if (answer.ok) return answer;
  const { error } = (await answer.json().catch(() => ({}))) as { error?: Record<string, never> };
  throw new SandgateError({
    code: "internal_error",
    message: `The server answered ${answer.status}.`,
    status: answer.status,
    ...error,
    requestId: answer.headers.get("x-request-id"),
    docsUrl: error?.docs_url,
  });
}

/** Returns whose token it is. */
async function keepToken(answer: Response): Promise<string> {
  const { access_token: value, expires_in: seconds } = (await answer.json()) as {
    access_token: string;
    expires_in: number;
  };
  // Read for what the page shows; the server verifies it.
  const claims = JSON.parse(atob(value.split(".")[1]?.replace(/-/g, "+").replace(/_/g, "/") ?? "")) as { sub: string };
  // Somebody else has signed in, here or in another tab. What this page knows isn't theirs.
  if (owner !== undefined && owner !== claims.sub) {
    location.reload();
    await new Promise(() => {});
  }
  owner = claims.sub;
  token = { value, expiresAt: Date.now() + seconds * 1000 };
  become("signed-in");
  return claims.sub;
}

/** A session that begins in this tab is the other tabs' too. */
async function beginSession(answer: Response): Promise<void> {
  channel.postMessage({ userId: await keepToken(answer) });
}

async function renewNow(): Promise<void> {
  const answer = await request("POST", "session/refresh");
  if (answer.status === 204) become("signed-out");
  else await keepToken(answer);
}

/**
 * Gets a new access token, unless the session has ended. Tabs take turns, since each refresh token works once: the next
 * one finds its successor in the cookie. Pages over plain HTTP have no locks; there the server gives both the same one.
 */
export function renewSession(): Promise<void> {
  renewal ??= (navigator.locks ? navigator.locks.request("sandgate-session", renewNow) : renewNow()).finally(() => {
    renewal = undefined;
  });
  return renewal;
}

/** Renews the session unless its token was not refused and has time left. */
async function renewWhenDue(refused?: string): Promise<void> {
  const isFresh = token && token.value !== refused && token.expiresAt - leewayMs > Date.now();
  if (!isFresh && status === "signed-in") await renewSession();
}

/** The credential of each request of the client. */
export const provideToken: TokenProvider = async ({ refused }) => {
  await renewWhenDue(refused);
  return token?.value;
};

// Whoever types sends no requests, nor does a tab that isn't shown, and a session that nobody uses ends.
setInterval(() => {
  // If it fails, the next one tries again.
  if (hasUnsaved()) renewWhenDue().catch(() => {});
}, keepAliveMs);

export async function signIn(credentials: { username: string; password: string; otp?: string }): Promise<void> {
  await beginSession(await request("POST", "session", credentials));
}

/** Which ways to sign in there are. */
export interface SignInOptions {
  providers: string[];
  registration_open: boolean;
  recaptcha: boolean;
  redirect_uri: string;
}

export async function readSignInOptions(): Promise<SignInOptions> {
  return (await request("GET", "session")).json();
}

/** Takes over the session that single sign-on has begun. */
export async function adoptSession(refreshToken: string): Promise<void> {
  await beginSession(await request("PUT", "session", { refresh_token: refreshToken }));
}

/** Ends the session in all tabs. The page is loaded anew, so that nothing of it is left for whoever signs in next. */
export async function signOut(): Promise<void> {
  await request("DELETE", "session");
  channel.postMessage({ userId: null });
  discardUnsaved();
  location.assign(document.baseURI);
}

/** The session has ended otherwise, such as with its account. */
export function forgetSession(): void {
  channel.postMessage({ userId: null });
  become("signed-out");
}

export const sessionStatus = (): SessionStatus => status;

/** Returns what ends it. */
export function onSessionChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}
