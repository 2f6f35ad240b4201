import {
  type ClientOptions,
  createSession,
  InvalidToken,
  type Sandbox,
  SandboxNotFound,
  Sandgate,
  SandgateError,
} from "@sandgate/client";
import { readStoredLogin, writeStoredLogin } from "@sandgate/client/stored-login";
import type { Format } from "./output.ts";

/** What a command works with. */
export interface Context {
  readonly signal: AbortSignal;
  readonly format: Format;
  /** The client, by options, environment and login. */
  readonly sandgate: Sandgate;
  /** What was given by options. */
  readonly options: ClientOptions;
}

export function createContext(o: {
  url: string | undefined;
  workspace: string | undefined;
  format: Format;
  signal: AbortSignal;
}): Context {
  const options: ClientOptions = { url: o.url, workspace: o.workspace };
  return { signal: o.signal, format: o.format, sandgate: new Sandgate(options), options };
}

const shortestPrefix = 4;

/** A sandbox by its id, its name, or how its id begins if that is unique. */
export async function findSandbox({ sandgate, signal }: Context, text: string): Promise<Sandbox> {
  try {
    return await sandgate.sandboxes.get(text, { signal });
  } catch (error) {
    if (!(error instanceof SandboxNotFound) || text.length < shortestPrefix || !/^[0-9a-f-]+$/.test(text)) throw error;
    const found: Sandbox[] = [];
    for await (const sandbox of sandgate.sandboxes.list({ limit: 500, signal })) {
      if (sandbox.id.startsWith(text)) found.push(sandbox);
    }
    const [first, second] = found;
    if (first === undefined) throw error;
    if (second === undefined) return first;
    throw new SandgateError({
      code: "ambiguous",
      message: `The ids of ${found.length} sandboxes begin with ${text}.`,
      hint: "Type more of the id, or the name.",
    });
  }
}

/**
 * A client with the session of the login, for what an API token may not do, such as making another. Throws InvalidToken
 * with a hint when it has ended.
 */
export async function openSession({ options, sandgate }: Context): Promise<Sandgate> {
  // An access token in the environment may be what is needed.
  if (process.env.SANDGATE_TOKEN) return sandgate;
  const stored = await readStoredLogin();
  const { session } = stored;
  const url = await sandgate.url();
  if (session === undefined || stored.url !== url) return sandgate;
  const anonymous = new Sandgate({ ...options, url, token: () => undefined });
  const token = createSession({
    tokens: { ...session, expiresIn: (Date.parse(session.expiresAt) - Date.now()) / 1000, refreshExpiresIn: 0 },
    async refresh(refreshToken) {
      try {
        return await anonymous.sessions.refresh(refreshToken);
      } catch (error) {
        if (!(error instanceof InvalidToken)) throw error;
        throw new InvalidToken({
          code: error.code,
          status: error.status,
          message: "The session of your sign-in has ended, which this needs.",
          hint: "Run `sandgate login` again.",
          requestId: error.requestId,
        });
      }
    },
    async onRefresh({ accessToken, refreshToken, expiresIn }) {
      const expiresAt = new Date(Date.now() + expiresIn * 1000).toISOString();
      await writeStoredLogin({ ...(await readStoredLogin()), session: { accessToken, refreshToken, expiresAt } });
    },
  });
  return new Sandgate({ ...options, url, token });
}
