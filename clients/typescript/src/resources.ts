// Everything of the API but sandboxes, as it has it.
import { withoutUndefined } from "./commands.ts";
import {
  type BodyOf,
  type CallOptions,
  type CreateOptions,
  fillPath,
  type Http,
  newIdempotencyKey,
  type QueryOf,
  queryOf,
} from "./http.ts";
import { List, type ListOptions } from "./list.ts";
import type * as records from "./records.ts";

type Fields<T extends object> = T & CallOptions;
type NewFields<T extends object> = T & CreateOptions;

/** Splits what a call carries from what it creates or changes. */
function split<T extends CreateOptions>(o: T) {
  const { signal, timeoutMs, idempotencyKey, ...json } = o;
  return { json, call: { signal, timeoutMs }, idempotencyKey: idempotencyKey ?? newIdempotencyKey() };
}

/** Splits what a list's page is asked by from what a call carries. */
function splitList<T extends ListOptions>(o: T) {
  const { signal, timeoutMs, ...query } = o;
  return { query: withoutUndefined(query), call: { signal, timeoutMs } };
}

class Resource {
  protected readonly http: Http;

  constructor(http: Http) {
    this.http = http;
  }
}

/** The images that sandboxes are made from. */
export class Images extends Resource {
  list(o: { enabledOnly?: boolean | undefined } & ListOptions = {}): List<records.Image> {
    // Without a limit the API gives all at once.
    const { query, call } = splitList({ limit: 100, ...o });
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const { images, nextCursor } = await this.http.call("GET", "/sandbox-images", { query: asked, ...call, signal });
      return { items: images, nextCursor };
    });
  }

  get(id: string, o: CallOptions = {}): Promise<records.Image> {
    return this.http.call("GET", "/sandbox-images/{image_id}", { params: { image_id: id }, ...o });
  }

  create(o: NewFields<BodyOf<"POST", "/sandbox-images">>): Promise<records.Image> {
    const { json, call, idempotencyKey } = split(o);
    return this.http.call("POST", "/sandbox-images", { json, idempotencyKey, ...call });
  }

  /** Changes the fields that are given. */
  update(id: string, o: Fields<BodyOf<"PUT", "/sandbox-images/{image_id}">>): Promise<records.Image> {
    const { json, call } = split(o);
    return this.http.call("PUT", "/sandbox-images/{image_id}", { params: { image_id: id }, json, ...call });
  }

  async delete(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/sandbox-images/{image_id}", { params: { image_id: id }, ...o });
  }
}

/** The credentials of private registries. */
export class Registries extends Resource {
  list(o: ListOptions = {}): List<records.Registry> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const { registries, nextCursor } = await this.http.call("GET", "/registries", { query: asked, ...call, signal });
      return { items: registries, nextCursor };
    });
  }

  get(id: string, o: CallOptions = {}): Promise<records.Registry> {
    return this.http.call("GET", "/registries/{registry_id}", { params: { registry_id: id }, ...o });
  }

  create(o: NewFields<BodyOf<"POST", "/registries">>): Promise<records.Registry> {
    const { json, call, idempotencyKey } = split(o);
    return this.http.call("POST", "/registries", { json, idempotencyKey, ...call });
  }

  update(id: string, o: Fields<BodyOf<"PUT", "/registries/{registry_id}">>): Promise<records.Registry> {
    const { json, call } = split(o);
    return this.http.call("PUT", "/registries/{registry_id}", { params: { registry_id: id }, json, ...call });
  }

  async delete(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/registries/{registry_id}", { params: { registry_id: id }, ...o });
  }
}

/** The workspaces that the caller is a member of. */
export class Workspaces extends Resource {
  list(o: ListOptions = {}): List<records.Workspace> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const { workspaces, nextCursor } = await this.http.call("GET", "/workspaces", { query: asked, ...call, signal });
      return { items: workspaces, nextCursor };
    });
  }

  get(id: string, o: CallOptions = {}): Promise<records.Workspace> {
    return this.http.call("GET", "/workspaces/{workspace_id}", { params: { workspace_id: id }, ...o });
  }

  create(o: NewFields<BodyOf<"POST", "/workspaces">>): Promise<records.Workspace> {
    const { json, call, idempotencyKey } = split(o);
    return this.http.call("POST", "/workspaces", { json, idempotencyKey, ...call });
  }

  update(id: string, o: Fields<BodyOf<"PUT", "/workspaces/{workspace_id}">>): Promise<records.Workspace> {
    const { json, call } = split(o);
    return this.http.call("PUT", "/workspaces/{workspace_id}", { params: { workspace_id: id }, json, ...call });
  }

  async delete(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/workspaces/{workspace_id}", { params: { workspace_id: id }, ...o });
  }
}

/** The members of the client's workspace. */
export class Members extends Resource {
  list(o: ListOptions = {}): List<records.Member> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const params = { workspace_id: await this.http.workspaceId() };
      const path = "/workspaces/{workspace_id}/members";
      const { members, nextCursor } = await this.http.call("GET", path, { params, query: asked, ...call, signal });
      return { items: members, nextCursor };
    });
  }

  /** Adds a user by name. */
  async create(o: NewFields<BodyOf<"POST", "/workspaces/{workspace_id}/members">>): Promise<records.Member> {
    const { json, call, idempotencyKey } = split(o);
    const params = { workspace_id: await this.http.workspaceId() };
    return this.http.call("POST", "/workspaces/{workspace_id}/members", { params, json, idempotencyKey, ...call });
  }

  /** Gives a member another role. */
  async update(
    userId: string,
    o: Fields<BodyOf<"PUT", "/workspaces/{workspace_id}/members/{user_id}">>,
  ): Promise<records.Member> {
    const { json, call } = split(o);
    const params = { workspace_id: await this.http.workspaceId(), user_id: userId };
    return this.http.call("PUT", "/workspaces/{workspace_id}/members/{user_id}", { params, json, ...call });
  }

  /** Removes a member; anybody may remove themselves. */
  async delete(userId: string, o: CallOptions = {}): Promise<void> {
    const params = { workspace_id: await this.http.workspaceId(), user_id: userId };
    await this.http.call("DELETE", "/workspaces/{workspace_id}/members/{user_id}", { params, ...o });
  }
}

/** The caller's API tokens, for which a session is needed. */
export class ApiTokens extends Resource {
  list(o: ListOptions = {}): List<records.ApiToken> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const { apiTokens, nextCursor } = await this.http.call("GET", "/api-tokens", { query: asked, ...call, signal });
      return { items: apiTokens, nextCursor };
    });
  }

  /** Makes a token, which is shown this once. */
  create(o: NewFields<BodyOf<"POST", "/api-tokens">>): Promise<records.CreatedApiToken> {
    const { json, call, idempotencyKey } = split(o);
    return this.http.call("POST", "/api-tokens", { json, idempotencyKey, ...call });
  }

  /** Revokes a token, by its id or by itself. */
  async delete(tokenOrId: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/api-tokens/{token}", { params: { token: tokenOrId }, ...o });
  }

  /** Revokes all of them. */
  async deleteAll(o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/api-tokens", o);
  }
}

export type AuditLogOptions = Omit<QueryOf<"GET", "/admin/audit-log">, "cursor" | "limit"> & ListOptions;

/** The audit log of the client's workspace, for its admins. */
export class AuditLog extends Resource {
  list(o: AuditLogOptions = {}): List<records.AuditEntry> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const params = { workspace_id: await this.http.workspaceId() };
      const path = "/workspaces/{workspace_id}/audit-log";
      const { entries, nextCursor } = await this.http.call("GET", path, { params, query: asked, ...call, signal });
      return { items: entries, nextCursor };
    });
  }
}

/** The caller's sessions, and how one begins and ends. */
export class Sessions extends Resource {
  list(o: ListOptions = {}): List<records.Session> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const { sessions, nextCursor } = await this.http.call("GET", "/auth/sessions", { query: asked, ...call, signal });
      return { items: sessions, nextCursor };
    });
  }

  /**
   * Signs in. An account with a second factor needs `otp`: without it InvalidCredentials has `body.otp` in `details`.
   */
  async create(o: Fields<BodyOf<"POST", "/auth/login">>): Promise<records.SessionTokens> {
    const { json, call } = split(o);
    return (await this.http.call("POST", "/auth/login", { json, anonymous: true, ...call })).tokens;
  }

  /**
   * Goes on with a session before its access token expires. Without a refresh token, what the browser keeps for the
   * page stands for it.
   */
  async refresh(refreshToken?: string, o: CallOptions = {}): Promise<records.SessionTokens> {
    const json = { ...(refreshToken !== undefined && { refreshToken }) } as { refreshToken: string };
    return (await this.http.call("POST", "/auth/refresh", { json, anonymous: true, repeatable: true, ...o })).tokens;
  }

  /** Signs out: ends the session that a refresh token belongs to. */
  async signOut(refreshToken?: string, o: CallOptions = {}): Promise<void> {
    const json = { ...(refreshToken !== undefined && { refreshToken }) } as { refreshToken: string };
    await this.http.call("POST", "/auth/logout", { json, anonymous: true, repeatable: true, ...o });
  }

  async delete(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/auth/sessions/{session_id}", { params: { session_id: id }, ...o });
  }

  /** Ends all but the caller's. */
  async deleteOthers(o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/auth/sessions", o);
  }
}

/** The caller's account. */
export class Account extends Resource {
  /** Who the caller is, and what the credential allows. */
  get(o: CallOptions = {}): Promise<records.AccountRecord> {
    return this.http.call("GET", "/auth/account", o);
  }

  /** Deletes the account. */
  async delete(o: Fields<BodyOf<"DELETE", "/auth/account">> = {}): Promise<void> {
    const { json, call } = split(o);
    await this.http.call("DELETE", "/auth/account", { json, ...call });
  }

  /** Ends all other sessions. */
  async changePassword(o: Fields<BodyOf<"POST", "/auth/password">>): Promise<void> {
    const { json, call } = split(o);
    await this.http.call("POST", "/auth/password", { json, ...call });
  }

  /** Asks for an account; a mail with a link comes. */
  async register(o: Fields<BodyOf<"POST", "/auth/register">>): Promise<void> {
    const { json, call } = split(o);
    await this.http.call("POST", "/auth/register", { json, anonymous: true, ...call });
  }

  async verifyEmail(o: Fields<BodyOf<"POST", "/auth/verify-email">>): Promise<void> {
    const { json, call } = split(o);
    await this.http.call("POST", "/auth/verify-email", { json, anonymous: true, ...call });
  }

  async resendVerification(username: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("POST", "/auth/resend-verification", { json: { username }, anonymous: true, ...o });
  }

  async requestPasswordReset(username: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("POST", "/auth/password/forgot", { json: { username }, anonymous: true, ...o });
  }

  /** Returns the accounts at providers that can still sign in. */
  async resetPassword(o: Fields<BodyOf<"POST", "/auth/password/reset">>): Promise<records.Identity[]> {
    const { json, call } = split(o);
    return (await this.http.call("POST", "/auth/password/reset", { json, anonymous: true, ...call })).identities;
  }

  /** The accounts at providers that can sign in. */
  async listIdentities(o: CallOptions = {}): Promise<records.Identity[]> {
    return (await this.http.call("GET", "/auth/identities", o)).identities;
  }

  async deleteIdentity(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/auth/identities/{identity_id}", { params: { identity_id: id }, ...o });
  }

  /** Where a browser goes to sign in by a provider. */
  async ssoUrl(provider: string, redirectUri?: string): Promise<string> {
    const { url } = await this.http.settings();
    return `${url}${fillPath("/auth/sso/{provider}", { provider })}${queryOf({ redirectUri })}`;
  }
}

/** The second factor of the caller's account. */
export class SecondFactors extends Resource {
  get(o: CallOptions = {}): Promise<records.SecondFactor> {
    return this.http.call("GET", "/auth/second-factor", o);
  }

  /** Begins to enable it; `confirm` with a code completes it. */
  create(o: Fields<BodyOf<"POST", "/auth/second-factor">> = {}): Promise<records.NewSecondFactor> {
    const { json, call } = split(o);
    return this.http.call("POST", "/auth/second-factor", { json, ...call });
  }

  /** Returns the recovery codes, which are shown this once. */
  async confirm(o: Fields<BodyOf<"POST", "/auth/second-factor/confirm">>): Promise<string[]> {
    const { json, call } = split(o);
    return (await this.http.call("POST", "/auth/second-factor/confirm", { json, ...call })).recoveryCodes;
  }

  /** Replaces the recovery codes. */
  async createRecoveryCodes(o: Fields<BodyOf<"POST", "/auth/second-factor/recovery-codes">>): Promise<string[]> {
    const { json, call } = split(o);
    return (await this.http.call("POST", "/auth/second-factor/recovery-codes", { json, ...call })).recoveryCodes;
  }

  async delete(o: Fields<BodyOf<"DELETE", "/auth/second-factor">>): Promise<void> {
    const { json, call } = split(o);
    await this.http.call("DELETE", "/auth/second-factor", { json, ...call });
  }
}

/** What operators of the platform may do. */
export class Admin extends Resource {
  listUsers(o: { username?: string } & ListOptions = {}): List<records.User> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const { users, nextCursor } = await this.http.call("GET", "/admin/users", { query: asked, ...call, signal });
      return { items: users, nextCursor };
    });
  }

  updateUser(id: string, o: Fields<BodyOf<"PUT", "/admin/users/{user_id}">>): Promise<records.User> {
    const { json, call } = split(o);
    return this.http.call("PUT", "/admin/users/{user_id}", { params: { user_id: id }, json, ...call });
  }

  async deleteUser(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/admin/users/{user_id}", { params: { user_id: id }, ...o });
  }

  async endUserSessions(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/admin/users/{user_id}/sessions", { params: { user_id: id }, ...o });
  }

  async revokeUserApiTokens(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/admin/users/{user_id}/api-tokens", { params: { user_id: id }, ...o });
  }

  async deleteUserSecondFactor(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/admin/users/{user_id}/second-factor", { params: { user_id: id }, ...o });
  }

  /** The sandboxes of all workspaces. */
  listSandboxes(
    o: Omit<QueryOf<"GET", "/admin/sandboxes">, "cursor" | "limit"> & ListOptions = {},
  ): List<records.SandboxRecord> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const { sandboxes, nextCursor } = await this.http.call("GET", "/admin/sandboxes", {
        query: asked,
        ...call,
        signal,
      });
      return { items: sandboxes, nextCursor };
    });
  }

  async stopSandbox(id: string, o: CallOptions = {}): Promise<void> {
    await this.http.call("DELETE", "/admin/sandboxes/{sandbox_id}", { params: { sandbox_id: id }, ...o });
  }

  /** The audit log of all workspaces. */
  listAuditLog(o: AuditLogOptions = {}): List<records.AuditEntry> {
    const { query, call } = splitList(o);
    return new List(async ({ cursor, signal = call.signal }) => {
      const asked = { ...query, ...(cursor !== undefined && { cursor }) };
      const { entries, nextCursor } = await this.http.call("GET", "/admin/audit-log", {
        query: asked,
        ...call,
        signal,
      });
      return { items: entries, nextCursor };
    });
  }
}
