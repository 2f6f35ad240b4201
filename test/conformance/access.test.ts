// Who may do what: every route, with every kind of credential, in every kind of workspace, by every role.
import { randomUUID } from "node:crypto";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, expectStatus } from "./client.ts";
import { codes, type ErrorCode } from "./codes.ts";
import { type Demand, demands, type Outcome, type PermissionName, type RoleName } from "./demands.ts";
import { openRestartable, requireSuiteSettings, type Target, type Tenant } from "./target.ts";

const hasSuiteSettings = await requireSuiteSettings();

/** What a request is made with. */
interface Credential {
  name: string;
  authorization?: string;
  /** Nobody may do anything with it. */
  refused?: ErrorCode;
  kind: "session" | "API token";
  /** Its role in the workspace of these users. */
  role: RoleName;
  operator?: true;
  /** The highest role that the token has anywhere. */
  limit?: RoleName;
  /** All that the token may do. */
  permissions?: readonly PermissionName[];
  /** A token for another workspace alone. */
  bound?: true;
  /** The user's. */
  password?: string;
}

/** Which workspace a request names. */
const places = ["none", "malformed", "nobody's", "foreign", "own"] as const;
type Place = (typeof places)[number];

const roles: readonly RoleName[] = ["member", "admin", "owner"];
const permissions: readonly PermissionName[] = ["read", "provision", "use", "manage"];
const rank = (role: RoleName) => roles.indexOf(role);
/** Requests at once: enough that the server is busy. */
const atOnce = 4;

let target: Target;
let users: Record<RoleName, Tenant>;
let workspace: string;
let foreign: string;
let credentials: readonly Credential[];
const unknown = randomUUID();

beforeAll(async () => {
  target = await openRestartable();
  const early = await target.newTenant();
  // A session's token is valid for 300 s, so only a clock that can be set ahead shows one that has expired.
  await target.setAhead?.(400_000);
  const expired = target.setAhead && early.token;

  const signedIn = async (user: Tenant) => (await signIn(user)).token;
  const [member, admin, owner] = [await target.newTenant(), await target.newTenant(), await target.newTenant()];
  users = { member, admin, owner };
  const operator = { ...target.operator, token: await signedIn(target.operator) };
  foreign = (await target.newTenant()).workspace;
  workspace = await shareWorkspace(owner, { member, admin });
  await add(owner, workspace, operator, "member");
  // What keeps everybody's account from being deleted.
  for (const user of [member, admin, operator]) await shareWorkspace(user, { member: owner });

  const jwt = owner.token.split(".");
  const [, payload = ""] = jwt;
  const unsigned = `${base64url({ alg: "none", typ: "at+jwt" })}.${payload}.`;
  const elevated = [jwt[0], base64url({ ...readJson(payload), op: true }), jwt[2]].join(".");
  const ended = await signIn(owner);
  expectStatus(await target.post("/auth/logout", { refresh_token: ended.refreshToken }), 204);
  const revoked = await createToken(owner);
  expectStatus(await target.delete(`/api-tokens/${revoked}`, { token: owner.token }), 204);
  const expiring = await createToken(owner, { expires_at: new Date(target.now() + 5_000).toISOString() });
  for (const token of [ended.token, revoked, expiring]) {
    await until(async () => expect((await target.get("/workspaces", { token })).status).toBe(401));
  }

  // Those of the owner, who may do the most: what is refused to them is refused for the credential.
  const refuse = (name: string, token: string | undefined, refused: ErrorCode = "invalid_token"): Credential[] =>
    token === undefined ? [] : [{ name, authorization: `Bearer ${token}`, refused, kind: "session", role: "owner" }];
  const accept = (name: string, token: string, o: Omit<Credential, "name" | "authorization">): Credential => ({
    name,
    authorization: `Bearer ${token}`,
    ...o,
  });
  const found: Credential[] = [
    { name: "no credential", refused: "unauthenticated", kind: "session", role: "owner" },
    {
      name: "another scheme",
      authorization: `Basic ${Buffer.from(`${owner.username}:${owner.password}`).toString("base64")}`,
      refused: "unauthenticated",
      kind: "session",
      role: "owner",
    },
    ...refuse("no token at all", "nonsense"),
    ...refuse("an unsigned session", unsigned),
    ...refuse("a session made an operator's", elevated),
    ...refuse("an expired session", expired),
    ...refuse("an ended session", ended.token),
    ...refuse("a refresh token", owner.refreshToken),
    ...refuse("an API token with a wrong checksum", `${revoked.slice(0, -1)}${revoked.endsWith("0") ? "1" : "0"}`),
    ...refuse("an expired API token", expiring),
    ...refuse("a revoked API token", revoked),
  ];
  for (const role of roles) {
    const user = users[role];
    found.push(accept(`session of ${role}`, user.token, { kind: "session", role, password: user.password }));
    found.push(accept(`API token of ${role}`, await createToken(user), { kind: "API token", role }));
    // A role limits, and never lifts.
    for (const limit of roles.filter((other) => other !== role && (other === "owner" || role === "owner"))) {
      const token = await createToken(user, { role: limit });
      const least = rank(limit) < rank(role) ? limit : role;
      found.push(accept(`API token of ${role} for ${limit}`, token, { kind: "API token", role: least, limit }));
    }
  }
  for (const some of [...permissions.map((one) => [one]), permissions]) {
    const token = await createToken(owner, { permissions: some });
    const name = `API token of owner to ${some.join(", ")}`;
    found.push(accept(name, token, { kind: "API token", role: "owner", permissions: some }));
  }
  // Permissions never lift a role.
  const managing = await createToken(member, { permissions: ["manage"] });
  found.push(
    accept("API token of member to manage", managing, { kind: "API token", role: "member", permissions: ["manage"] }),
  );
  const bound = await createToken(owner, { workspace_id: owner.workspace });
  found.push(
    accept("API token of owner for another workspace", bound, { kind: "API token", role: "owner", bound: true }),
  );
  const { password } = operator;
  found.push(
    accept("session of operator", operator.token, { kind: "session", role: "member", operator: true, password }),
  );
  found.push(accept("API token of operator", await createToken(operator), { kind: "API token", role: "member" }));
  credentials = found;
});
afterAll(() => target?.close());

test("every route of the API is in the table, and every line of the table is a route", async () => {
  const { paths } = expectStatus(await target.get("/openapi.json"), 200);
  const routes = Object.entries<object>(paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const listed = new Set(Object.keys(demands).map((line) => routeOf(line).join(" ")));
  // The one route that the document leaves out: the script of the page that shows it.
  expect([...listed].sort()).toEqual([...routes, "GET /docs/reference.js"].sort());
});

test("a route says which permission an API token needs exactly if one may call it", async () => {
  const { paths } = expectStatus(await target.get("/openapi.json"), 200);
  for (const [line, { who, permission }] of Object.entries(demands)) {
    expect(permission !== undefined, line).toBe(who === "user");
    const [method, path] = routeOf(line);
    const description: string = paths[path]?.[method.toLowerCase()]?.description ?? "";
    const needsNone = description.includes("whatever `permissions` it has");
    const told = needsNone ? "none" : /has `permissions` needs `(\w+)`/.exec(description)?.[1];
    expect(told, line).toBe(permission);
  }
});

describe("answers exactly what it should to every caller:", () => {
  test.for(Object.entries(demands))("%s", async ([line, demand], { skip }) => {
    skip(line.includes("{provider}") && !hasSuiteSettings, "whether single sign-on is set up is not known");
    const [method] = routeOf(line);
    for (const sent of method === "GET" && !isBrief() ? ["GET", "HEAD"] : [method]) {
      const cells = credentials
        .filter(({ operator }) => !(operator && demand.notAsOperator))
        .flatMap((credential) => placesOf(line, demand, sent).map((place) => ({ credential, place })));
      const wanted: Record<string, string> = {};
      const found: Record<string, string> = {};
      const next = cells.values();
      const send = async () => {
        for (const { credential, place } of next) {
          const name = `${sent} with ${credential.name}, workspace: ${place}`;
          const outcome = outcomeOf(line, demand, credential, place);
          wanted[name] = sent === "HEAD" ? statusOf(outcome) : describeOutcome(outcome);
          const answer = await request(sent, line, demand, credential, place);
          expect(answer.headers.get("x-content-type-options"), name).toBe("nosniff");
          expect(answer.headers.get("content-security-policy"), name).toContain("frame-ancestors 'none'");
          found[name] = sent === "HEAD" ? String(answer.status) : describeAnswer(answer);
        }
      };
      await Promise.all(Array.from({ length: atOnce }, send));
      expect(found).toEqual(wanted);
    }
  });
});

/** What a caller should be answered, by the rules that hold for all routes, in order. */
function outcomeOf(line: string, demand: Demand, credential: Credential, place: Place): Outcome {
  const { who, least, permission } = demand;
  if (who === "anyone") return demand.answers;
  if (credential.refused) return credential.refused;
  const inPath = line.includes("{workspace_id}");
  if (least && place === "malformed") return [inPath ? "path.workspace_id" : "header.x-workspace-id"];
  if (who !== "user" && credential.kind !== "session") return "forbidden";
  if (who === "operator" && !credential.operator) return "forbidden";
  const isPermitted =
    !credential.permissions ||
    permission === "none" ||
    (permission !== undefined && credential.permissions.includes(permission));
  if (!least) {
    if (!isPermitted) return "forbidden";
    if (demand.unbound && credential.bound) return "workspace_forbidden";
    return demand.unbound && credential.limit && credential.limit !== "owner" ? "insufficient_role" : demand.answers;
  }
  if (place === "none") return "workspace_required";
  if (credential.bound) return "workspace_forbidden";
  if (place === "nobody's") return inPath ? "workspace_not_found" : "workspace_forbidden";
  if (place === "foreign") return "workspace_forbidden";
  if (rank(credential.role) < rank(least)) return "insufficient_role";
  return isPermitted ? demand.answers : "forbidden";
}

/** The facade is the same in every form, so only in one are all its answers read. */
const isBrief = () => target.setAhead === undefined;

/** Where a workspace doesn't matter, one in the header that is no workspace at all must not either. */
function placesOf(line: string, { least }: Demand, sent: string): readonly Place[] {
  if (sent === "HEAD" || isBrief()) return least ? ["foreign", "own"] : ["none"];
  if (!least) return ["none", "malformed"];
  return line.includes("{workspace_id}") ? places.filter((place) => place !== "none") : places;
}

async function request(
  method: string,
  line: string,
  demand: Demand,
  credential: Credential,
  place: Place,
): Promise<Answer> {
  const [, path] = routeOf(line);
  const inPath = path.includes("{workspace_id}");
  const granted = outcomeOf(line, demand, credential, place) === demand.answers;
  const own = demand.disposable && granted ? await shareWorkspace(users.owner, {}) : workspace;
  const authorization =
    demand.asNewUser && granted ? `Bearer ${(await target.newTenant()).token}` : credential.authorization;
  const named = { none: undefined, malformed: "not-a-uuid", "nobody's": unknown, foreign, own }[place];
  // A workspace in the path is the only one that counts.
  const header = inPath ? (place === "own" ? foreign : workspace) : named;
  const body =
    demand.body &&
    JSON.stringify(demand.body)
      .replace("{unknown}", unknown)
      .replace("{password}", credential.password ?? "");
  const filled = path
    .replace("{workspace_id}", String(named))
    .replace("{provider}", "google")
    .replace("{port}", "80")
    .replace(/\{\w+\}/g, unknown);
  return target.send(method, filled + (demand.query ?? ""), {
    headers: {
      ...(authorization !== undefined && { authorization }),
      ...(header !== undefined && { "x-workspace-id": header }),
      // What is created is created once for each user.
      ...(demand.answers === 201 && { "idempotency-key": `access ${line}` }),
    },
    ...(body !== undefined && { raw: body }),
  });
}

/** "GET /workspaces and more words" -> ["GET", "/workspaces"] */
function routeOf(line: string): [method: string, path: string] {
  const [method = "", path = ""] = line.split(" ");
  return [method, path];
}

function statusOf(outcome: Outcome): string {
  if (typeof outcome === "number") return String(outcome);
  return String(codes[typeof outcome === "string" ? outcome : "validation_error"].status);
}

function describeOutcome(outcome: Outcome): string {
  if (typeof outcome === "number") return String(outcome);
  return `${statusOf(outcome)} ${typeof outcome === "string" ? outcome : outcome.join(" ")}`;
}

function describeAnswer({ status, body }: Answer): string {
  if (status < 400) return String(status);
  // The 422 of DELETE /workspaces/{workspace_id} has a shape of its own.
  const listed = Array.isArray(body?.detail)
    ? body.detail.map(({ loc }: { loc: string[] }) => loc.join("."))
    : undefined;
  const fields = listed ?? body?.error?.details?.map(({ field }: { field: string }) => field);
  return `${status} ${fields ? fields.sort().join(" ") : body?.error?.code}`;
}

async function signIn(user: Tenant): Promise<{ token: string; refreshToken: string }> {
  const { username, password } = user;
  const { tokens } = expectStatus(await target.post("/auth/login", { username, password }), 200);
  return { token: tokens.access_token, refreshToken: tokens.refresh_token };
}

async function createToken(user: { token: string }, fields: object = {}): Promise<string> {
  const created = await target.post("/api-tokens", { description: "access", ...fields }, { token: user.token });
  return expectStatus(created, 201).token;
}

/** A new workspace of `owner` with these members. */
async function shareWorkspace(owner: Tenant, members: Partial<Record<RoleName, Tenant>>): Promise<string> {
  const { id } = expectStatus(await target.post("/workspaces", { name: "shared" }, { token: owner.token }), 201);
  for (const role of roles) {
    const user = members[role];
    if (user) await add(owner, id, user, role);
  }
  return id;
}

async function add(owner: Tenant, workspaceId: string, { username }: Tenant, role: RoleName): Promise<void> {
  expectStatus(
    await target.post(`/workspaces/${workspaceId}/members`, { username, role }, { token: owner.token }),
    201,
  );
}

const base64url = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
const readJson = (text: string) => JSON.parse(Buffer.from(text, "base64url").toString());
