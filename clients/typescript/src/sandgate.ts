import type { BodyOf, CallOptions } from "./http.ts";
import { Http } from "./http.ts";
import type { SessionTokens } from "./records.ts";
import {
  Account,
  Admin,
  ApiTokens,
  AuditLog,
  Images,
  Members,
  Registries,
  SecondFactors,
  Sessions,
  Workspaces,
} from "./resources.ts";
import { Sandboxes } from "./sandbox.ts";
import { createSession } from "./session.ts";
import type { ClientOptions } from "./settings.ts";

/** A client of one platform, for one workspace. */
export class Sandgate {
  readonly sandboxes: Sandboxes;
  readonly images: Images;
  readonly registries: Registries;
  readonly workspaces: Workspaces;
  readonly members: Members;
  readonly apiTokens: ApiTokens;
  readonly auditLog: AuditLog;
  readonly account: Account;
  readonly sessions: Sessions;
  readonly secondFactor: SecondFactors;
  readonly admin: Admin;
  readonly #options: ClientOptions;
  readonly #http: Http;

  constructor(options: ClientOptions = {}) {
    this.#options = options;
    const http = new Http(options);
    this.#http = http;
    this.sandboxes = new Sandboxes(http);
    this.images = new Images(http);
    this.registries = new Registries(http);
    this.workspaces = new Workspaces(http);
    this.members = new Members(http);
    this.apiTokens = new ApiTokens(http);
    this.auditLog = new AuditLog(http);
    this.account = new Account(http);
    this.sessions = new Sessions(http);
    this.secondFactor = new SecondFactors(http);
    this.admin = new Admin(http);
  }

  /** Signs in by password. The session goes on by itself for as long as the client is used. */
  static async signIn(
    o: BodyOf<"POST", "/auth/login"> &
      Omit<ClientOptions, "token"> &
      CallOptions & { onRefresh?: (tokens: SessionTokens) => void | Promise<void> },
  ): Promise<Sandgate> {
    const { username, password, otp, recaptchaToken, signal, timeoutMs, onRefresh, ...options } = o;
    const anonymous = new Sandgate({ ...options, token: () => undefined });
    const tokens = await anonymous.sessions.create({
      username,
      password,
      ...(otp !== undefined && { otp }),
      ...(recaptchaToken !== undefined && { recaptchaToken }),
      signal,
      timeoutMs,
    });
    await onRefresh?.(tokens);
    const refresh = (refreshToken: string | undefined) => anonymous.sessions.refresh(refreshToken);
    return new Sandgate({ ...options, token: createSession({ tokens, refresh, onRefresh }) });
  }

  /** The same client for another workspace, by id or name. */
  forWorkspace(workspace: string): Sandgate {
    return new Sandgate({ ...this.#options, workspace });
  }

  /** The id of the workspace that this client uses. */
  workspaceId(o: CallOptions = {}): Promise<string> {
    return this.#http.workspaceId(o);
  }

  /** The address of the API. */
  async url(): Promise<string> {
    return (await this.#http.settings()).url;
  }
}
