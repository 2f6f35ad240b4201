import type { ErrorCode } from "./codes.ts";

export type RoleName = "member" | "admin" | "owner";
export type PermissionName = "read" | "provision" | "use" | "manage";

/**
 * What a request with all that a route demands is answered: a status, an error's code, or the fields that are invalid.
 */
export type Outcome = number | ErrorCode | readonly string[];

/** What a route demands of a caller. */
export interface Demand {
  /** anyone: no credential is looked at. user: a session or an API token. session, operator: no API token. */
  who: "anyone" | "user" | "session" | "operator";
  /** The least role, in the workspace that the header or the path names. */
  least?: RoleName;
  /** What an API token with permissions needs; none: any will do. Each route that an API token may call has one. */
  permission?: PermissionName | "none";
  answers: Outcome;
  body?: object;
  query?: string;
  /** Not for an API token that is bound to a workspace, or that is an owner nowhere. */
  unbound?: true;
  /** Each request that is granted takes a workspace away, so it has one of its own. */
  disposable?: true;
  /** Each request that is granted takes something from its user that others need, so a new user makes it. */
  asNewUser?: true;
  /** The operator's request is left out: it would end sessions of which others that use the platform know nothing. */
  notAsOperator?: true;
}

const page: Demand = { who: "anyone", answers: 200 };
const reads = { who: "user", least: "member", permission: "read" } as const;
const provisions = { ...reads, permission: "provision" } as const;
const uses = { ...reads, permission: "use" } as const;
const manages = { who: "user", least: "admin", permission: "manage" } as const;

/**
 * What each route demands, written down from the API's description and not read from the code. Requests are such that
 * they change nothing that matters: they name what doesn't exist, or carry a body that is refused once its sender is
 * known. A route may have several lines, distinguished by what follows a second space.
 */
export const demands: Record<string, Demand> = {
  "GET /healthz": page,
  "GET /readyz": page,
  "GET /openapi.json": page,
  "GET /docs": page,
  "GET /docs/errors": page,
  "GET /docs/reference.js": page,

  "POST /auth/register": { who: "anyone", body: {}, answers: ["body.password", "body.username"] },
  "GET /auth/verify-email": page,
  "POST /auth/verify-email": { who: "anyone", body: {}, answers: ["body.password", "body.token"] },
  "POST /auth/resend-verification": { who: "anyone", body: {}, answers: ["body.username"] },
  "POST /auth/login": { who: "anyone", body: {}, answers: ["body.password", "body.username"] },
  "POST /auth/refresh": { who: "anyone", body: {}, answers: ["body.refresh_token"] },
  "POST /auth/refresh unknown": { who: "anyone", body: { refresh_token: "unknown" }, answers: "invalid_token" },
  "POST /auth/logout": { who: "anyone", body: {}, answers: ["body.refresh_token"] },
  // The suite's settings set no provider up.
  "GET /auth/sso/{provider}": { who: "anyone", answers: "not_found" },
  "GET /auth/sso/{provider}/callback": { who: "anyone", answers: "not_found" },
  "POST /auth/password/forgot": { who: "anyone", body: {}, answers: ["body.username"] },
  "GET /auth/password/reset": page,
  "POST /auth/password/reset": { who: "anyone", body: {}, answers: ["body.password", "body.token"] },
  "POST /auth/password": {
    who: "session",
    body: { current_password: "{password}", password: "1234567890" },
    answers: ["body.password"],
  },
  "GET /auth/account": { who: "user", permission: "none", answers: 200 },
  // Everybody of these is the last owner of a workspace with other members, which only the password's owner learns.
  "DELETE /auth/account": { who: "session", body: { password: "{password}" }, answers: "conflict" },
  "DELETE /auth/account with a wrong password": {
    who: "session",
    body: { password: "not the password" },
    answers: "invalid_credentials",
  },
  "GET /auth/sessions": { who: "session", answers: 200 },
  "DELETE /auth/sessions": { who: "session", answers: 204, notAsOperator: true },
  "DELETE /auth/sessions/{session_id}": { who: "session", answers: "not_found" },

  "GET /auth/identities": { who: "session", answers: 200 },
  "DELETE /auth/identities/{identity_id}": { who: "session", answers: "not_found" },

  "GET /auth/second-factor": { who: "session", answers: 200 },
  "POST /auth/second-factor": {
    who: "session",
    body: { password: "not the password" },
    answers: "invalid_credentials",
  },
  // Nobody of these has one.
  "POST /auth/second-factor/confirm": { who: "session", body: { otp: "000000" }, answers: "conflict" },
  "POST /auth/second-factor/recovery-codes": {
    who: "session",
    body: { password: "{password}", otp: "000000" },
    answers: "conflict",
  },
  "DELETE /auth/second-factor": {
    who: "session",
    body: { password: "{password}", otp: "000000" },
    answers: "conflict",
  },

  "GET /api-tokens": { who: "session", answers: 200 },
  "POST /api-tokens": { who: "session", body: { description: "access" }, answers: 201 },
  "POST /api-tokens for another's workspace": {
    who: "session",
    body: { description: "access", workspace_id: "{unknown}" },
    answers: "workspace_forbidden",
  },
  "DELETE /api-tokens": { who: "session", answers: 204, asNewUser: true },
  "DELETE /api-tokens/{token}": { who: "session", answers: "api_key_not_found" },

  "GET /workspaces": { who: "user", permission: "read", answers: 200 },
  "POST /workspaces": { who: "user", permission: "manage", body: { name: "access" }, answers: 201, unbound: true },
  "GET /workspaces/{workspace_id}": { ...reads, answers: 200 },
  "PUT /workspaces/{workspace_id}": { ...manages, body: { name: "access" }, answers: 200 },
  "DELETE /workspaces/{workspace_id}": { ...manages, least: "owner", answers: 204, disposable: true },
  "GET /workspaces/{workspace_id}/members": { ...reads, answers: 200 },
  "POST /workspaces/{workspace_id}/members": {
    ...manages,
    body: { username: "nobody@example.com", role: "member" },
    answers: "member_not_found",
  },
  "POST /workspaces/{workspace_id}/members an owner": {
    ...manages,
    least: "owner",
    body: { username: "nobody@example.com", role: "owner" },
    answers: "member_not_found",
  },
  "PUT /workspaces/{workspace_id}/members/{user_id}": {
    ...manages,
    body: { role: "member" },
    answers: "member_not_found",
  },
  "DELETE /workspaces/{workspace_id}/members/{user_id}": { ...manages, answers: "member_not_found" },
  "GET /workspaces/{workspace_id}/audit-log": { ...reads, least: "admin", answers: 200 },

  "GET /sandbox-images": { ...reads, answers: 200 },
  "POST /sandbox-images": {
    ...manages,
    body: { name: "access", image: "registry.example.com/app", registry_id: "unknown" },
    answers: "registry_not_found",
  },
  "POST /sandbox-images a default": {
    ...manages,
    body: { name: "access", image: "registry.example.com/app", is_default: true },
    answers: "forbidden",
  },
  "GET /sandbox-images/{image_id}": { ...reads, answers: "image_not_found" },
  "PUT /sandbox-images/{image_id}": { ...manages, body: { name: "access" }, answers: "image_not_found" },
  "DELETE /sandbox-images/{image_id}": { ...manages, answers: "image_not_found" },

  "GET /registries": { ...reads, answers: 200 },
  "POST /registries": {
    ...manages,
    body: { name: "access", url: "http://127.0.0.1:1", username: "u", password: "p" },
    answers: ["body.url"],
  },
  "GET /registries/{registry_id}": { ...reads, answers: "registry_not_found" },
  "PUT /registries/{registry_id}": { ...manages, body: { name: "access" }, answers: "registry_not_found" },
  "DELETE /registries/{registry_id}": { ...manages, answers: "registry_not_found" },

  "GET /sandboxes": { ...reads, answers: 200 },
  "POST /sandboxes/provision": { ...provisions, body: { image_id: "unknown" }, answers: "image_not_found" },
  "POST /sandboxes/wait": { ...provisions, body: { sandbox_id: "unknown" }, answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}": { ...reads, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/extend": { ...provisions, body: { ttl_seconds: 60 }, answers: "sandbox_not_found" },
  "DELETE /sandboxes/{sandbox_id}": { ...provisions, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/exec": { ...uses, body: { command: ["true"] }, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/processes": { ...uses, body: { command: ["true"] }, answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/processes": { ...uses, answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/processes/{process_id}": { ...uses, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/processes/{process_id}/wait": { ...uses, body: {}, answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/processes/{process_id}/output": { ...uses, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/processes/{process_id}/stdin": { ...uses, answers: "sandbox_not_found" },
  // Without an upgrade it is refused once its sender is known.
  "GET /sandboxes/{sandbox_id}/processes/{process_id}/attach": { ...uses, answers: ["header.upgrade"] },
  "POST /sandboxes/{sandbox_id}/processes/{process_id}/tickets": { ...uses, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/processes/{process_id}/signal": {
    ...uses,
    body: { signal: "SIGTERM" },
    answers: "sandbox_not_found",
  },
  "PUT /sandboxes/{sandbox_id}/processes/{process_id}/pty": {
    ...uses,
    body: { cols: 80, rows: 24 },
    answers: "sandbox_not_found",
  },
  "DELETE /sandboxes/{sandbox_id}/processes/{process_id}": { ...uses, answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/files": { ...uses, query: "?path=x", answers: "sandbox_not_found" },
  "PUT /sandboxes/{sandbox_id}/files": { ...uses, query: "?path=x", answers: "sandbox_not_found" },
  "PATCH /sandboxes/{sandbox_id}/files": {
    ...uses,
    query: "?path=x",
    body: { mode: "0644" },
    answers: "sandbox_not_found",
  },
  "DELETE /sandboxes/{sandbox_id}/files": { ...uses, query: "?path=x", answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/files/entry": { ...uses, query: "?path=x", answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/files/entries": { ...uses, query: "?path=x", answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/files/directories": { ...uses, body: { path: "x" }, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/files/move": {
    ...uses,
    body: { from: "x", to: "y" },
    answers: "sandbox_not_found",
  },
  "GET /sandboxes/{sandbox_id}/files/archive": { ...uses, query: "?path=x", answers: "sandbox_not_found" },
  "PUT /sandboxes/{sandbox_id}/files/archive": { ...uses, query: "?path=x", answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/files/watch": { ...uses, query: "?path=x", answers: "sandbox_not_found" },
  // Without an upgrade it is refused once its sender is known.
  "GET /sandboxes/{sandbox_id}/ports/{port}/tcp": { ...uses, answers: ["header.upgrade"] },
  "GET /sandboxes/{sandbox_id}/listening": { ...uses, answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/ports/{port}/http/{rest}": { ...uses, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/ports/{port}/http/{rest}": { ...uses, answers: "sandbox_not_found" },
  "PUT /sandboxes/{sandbox_id}/ports/{port}/http/{rest}": { ...uses, answers: "sandbox_not_found" },
  "PATCH /sandboxes/{sandbox_id}/ports/{port}/http/{rest}": { ...uses, answers: "sandbox_not_found" },
  "DELETE /sandboxes/{sandbox_id}/ports/{port}/http/{rest}": { ...uses, answers: "sandbox_not_found" },
  "OPTIONS /sandboxes/{sandbox_id}/ports/{port}/http/{rest}": { ...uses, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/ports": { ...uses, body: { port: 80 }, answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/ports": { ...uses, answers: "sandbox_not_found" },
  "GET /sandboxes/{sandbox_id}/ports/{preview_id}": { ...uses, answers: "sandbox_not_found" },
  "DELETE /sandboxes/{sandbox_id}/ports/{preview_id}": { ...uses, answers: "sandbox_not_found" },
  "POST /sandboxes/{sandbox_id}/ports/{preview_id}/links": { ...uses, body: {}, answers: "sandbox_not_found" },
  "GET /sandbox/monitoring/{sandbox_id}": { ...reads, answers: "sandbox_not_found" },
  "GET /sandbox/monitoring/{sandbox_id}/stream": { ...reads, answers: "sandbox_not_found" },

  "GET /admin/users": { who: "operator", answers: 200 },
  "PUT /admin/users/{user_id}": { who: "operator", body: { enabled: true }, answers: "not_found" },
  "DELETE /admin/users/{user_id}": { who: "operator", answers: "not_found" },
  "DELETE /admin/users/{user_id}/sessions": { who: "operator", answers: "not_found" },
  "DELETE /admin/users/{user_id}/api-tokens": { who: "operator", answers: "not_found" },
  "DELETE /admin/users/{user_id}/second-factor": { who: "operator", answers: "not_found" },
  "GET /admin/sandboxes": { who: "operator", answers: 200 },
  "DELETE /admin/sandboxes/{sandbox_id}": { who: "operator", answers: "sandbox_not_found" },
  "GET /admin/audit-log": { who: "operator", answers: 200 },
};
