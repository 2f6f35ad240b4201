import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uniqueName, uuid } from "./client.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

let target: Target;
let owner: Tenant;
let colleague: Tenant;
let stranger: Tenant;

beforeAll(async () => {
  target = await openTarget();
  [owner, colleague, stranger] = await Promise.all([target.newTenant(), target.newTenant(), target.newTenant()]);
});
afterAll(() => target?.close());

interface Entry {
  id: string;
  at: string;
  workspace_id: string | null;
  actor: { user_id: string } | null;
  credential: { type: string; id: string } | null;
  address: string | null;
  action: string;
  target: { type: string; id: string } | null;
  outcome: string;
  request_id: string | null;
  count: number;
}

const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
const userIdOf = (tenant: Tenant): string =>
  JSON.parse(Buffer.from(tenant.token.split(".")[1] ?? "", "base64url").toString()).sub;

/** All entries that match, newest first. */
async function read(path: string, tenant: Tenant, query = ""): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (let cursor = ""; ; ) {
    const page = await target.get(`${path}?limit=500&cursor=${cursor}${query}`, { token: tenant.token });
    const { entries: found, next_cursor } = expectStatus(page, 200);
    entries.push(...found);
    if (next_cursor === null) return entries;
    cursor = next_cursor;
  }
}
const logOf = (workspaceId: string, tenant = owner, query = "") =>
  read(`/workspaces/${workspaceId}/audit-log`, tenant, query);
const wholeLog = (query: string) => read("/admin/audit-log", target.operator, query);

/** A workspace of the owner's own in which nothing else happens. */
async function newWorkspace(): Promise<string> {
  return expectStatus(await target.post("/workspaces", { name: uniqueName("w") }, { token: owner.token }), 201).id;
}

describe("a workspace's audit log", () => {
  test("has an entry for everything that is done in it, with who, from where, on what and by which request", async () => {
    const id = await newWorkspace();
    const here = { token: owner.token, workspace: id };
    const path = `/workspaces/${id}`;
    const renamed = await target.put(path, { name: "Other" }, here);
    expectStatus(renamed, 200);
    const member = { username: colleague.username, role: "member" };
    expectStatus(await target.post(`${path}/members`, member, here), 201);
    const colleagueId = userIdOf(colleague);
    expectStatus(await target.put(`${path}/members/${colleagueId}`, { role: "admin" }, here), 200);
    expectStatus(await target.delete(`${path}/members/${colleagueId}`, here), 204);
    const image = expectStatus(await target.post("/sandbox-images", { name: "i", image: "busybox" }, here), 201);
    expectStatus(await target.put(`/sandbox-images/${image.id}`, { name: "j" }, here), 200);
    expectStatus(await target.delete(`/sandbox-images/${image.id}`, here), 204);
    const bound = { description: "ci", workspace_id: id };
    const token = expectStatus(await target.post("/api-tokens/", bound, { token: owner.token }), 201);
    const asToken = { token: token.token, workspace: id };
    const provision = { image_id: target.defaultImageId };
    const sandbox = expectStatus(await target.post("/sandboxes/provision", provision, asToken), 201);
    for (let time = 0; time < 2; time++) expectStatus(await target.delete(`/sandboxes/${sandbox.id}`, asToken), 204);
    expectStatus(await target.delete(`/api-tokens/${token.id}`, { token: owner.token }), 204);

    await expect
      .poll(async () =>
        (await logOf(id)).map(({ action, target: on }) => [action, ...Object.values(on ?? {})]).toReversed(),
      )
      .toEqual([
        ["workspace.create", "workspace", id],
        ["workspace.update", "workspace", id],
        ["member.add", "member", colleagueId, "member"],
        ["member.update", "member", colleagueId, "admin"],
        ["member.remove", "member", colleagueId],
        ["image.create", "image", image.id],
        ["image.update", "image", image.id],
        ["image.delete", "image", image.id],
        ["api_token.create", "api_token", token.id],
        ["sandbox.provision", "sandbox", sandbox.id],
        ["sandbox.stop", "sandbox", sandbox.id],
        ["api_token.revoke", "api_token", token.id],
      ]);
    const entries = await logOf(id);
    for (const entry of entries) {
      expect(entry).toEqual({
        id: uuid,
        at: isoMilliseconds,
        workspace_id: id,
        actor: { user_id: userIdOf(owner) },
        credential: { type: entry.action.startsWith("sandbox.") ? "api_token" : "session", id: expect.any(String) },
        address: target.clientAddress,
        action: expect.any(String),
        target: expect.objectContaining({ type: expect.any(String), id: expect.any(String) }),
        outcome: "success",
        request_id: expect.any(String),
        count: 1,
      });
    }
    expect(entries.find(({ action }) => action === "sandbox.stop")?.credential?.id).toBe(token.id);
    expect(entries.find(({ action }) => action === "workspace.update")?.request_id).toBe(
      renamed.headers.get("x-request-id"),
    );
  });

  test("has what a member may not do and what an operator does, and is nobody's but the admins'", async () => {
    const id = await newWorkspace();
    const here = { token: owner.token, workspace: id };
    const member = { username: colleague.username, role: "member" };
    expectStatus(await target.post(`/workspaces/${id}/members`, member, here), 201);
    const path = `/workspaces/${id}/audit-log`;
    expectError(await target.get(path, { token: colleague.token }), "insufficient_role");
    expectError(await target.get(path, { token: stranger.token }), "workspace_forbidden");
    expectError(await target.get(path, { token: target.operator.token }), "workspace_forbidden");
    expectError(await target.delete(`/workspaces/${id}`, { token: stranger.token }), "workspace_forbidden");
    const provision = { image_id: target.defaultImageId };
    const sandbox = expectStatus(await target.post("/sandboxes/provision", provision, here), 201);
    expectStatus(await target.delete(`/admin/sandboxes/${sandbox.id}`, { token: target.operator.token }), 204);

    await expect
      .poll(async () => (await logOf(id)).map((entry) => `${entry.action} ${entry.outcome}`).toSorted())
      .toEqual([
        "audit_log.read insufficient_role",
        "member.add success",
        "sandbox.provision success",
        "sandbox.stop success",
        "workspace.create success",
      ]);
    const entries = await logOf(id);
    const actorOf = (action: string) => entries.find((entry) => entry.action === action)?.actor?.user_id;
    expect(actorOf("audit_log.read")).toBe(userIdOf(colleague));
    expect(actorOf("sandbox.stop")).toBe(userIdOf(target.operator));
    await expect
      .poll(async () => (await wholeLog(`&actor=${userIdOf(stranger)}`)).map((entry) => entry))
      .toContainEqual(
        expect.objectContaining({
          action: "workspace.delete",
          outcome: "workspace_forbidden",
          workspace_id: null,
          target: { type: "workspace", id },
        }),
      );
  });

  test("is filtered, paged in a fixed order, and refuses what it doesn't know", async () => {
    const id = await newWorkspace();
    for (let i = 0; i < 4; i++) {
      expectStatus(await target.put(`/workspaces/${id}`, { name: `${i}` }, { token: owner.token }), 200);
    }
    await expect.poll(() => logOf(id)).toHaveLength(5);
    const all = await logOf(id);
    const paged: Entry[] = [];
    for (let cursor = ""; ; ) {
      const path = `/workspaces/${id}/audit-log?limit=2&cursor=${cursor}`;
      const { entries, next_cursor } = expectStatus(await target.get(path, as(owner)), 200);
      paged.push(...entries);
      if (next_cursor === null) break;
      cursor = next_cursor;
    }
    expect(paged).toEqual(all);
    expect(all.map(({ at }) => at)).toEqual(
      all
        .map(({ at }) => at)
        .toSorted()
        .toReversed(),
    );
    expect(await logOf(id, owner, "&action=workspace.update")).toHaveLength(4);
    expect(await logOf(id, owner, `&actor=${userIdOf(stranger)}`)).toEqual([]);
    const middle = all[2]?.at ?? "";
    const [since, until] = [await logOf(id, owner, `&since=${middle}`), await logOf(id, owner, `&until=${middle}`)];
    expect([...since, ...until]).toEqual(all);
    const path = `/workspaces/${id}/audit-log`;
    expectInvalid(await target.get(`${path}?action=sandbox.explode`, as(owner)), "query.action");
    expectInvalid(await target.get(`${path}?since=2026-01-01`, as(owner)), "query.since");
    expectInvalid(await target.get(`${path}?cursor=nonsense`, as(owner)), "query.cursor");
  });
});

describe("the whole audit log", () => {
  test("is for operators by a session alone", async () => {
    expectError(await target.get("/admin/audit-log", { token: owner.token }), "forbidden");
    expectError(await target.get("/admin/audit-log"), "unauthenticated");
  });

  test("has what happens to an account, by whom, and what was done in a workspace that is deleted", async () => {
    const tenant = await target.newTenant();
    const id = userIdOf(tenant);
    const password = "another correct horse";
    const change = { current_password: tenant.password, password };
    expectStatus(await target.post("/auth/password", change, { token: tenant.token }), 200);
    const second = expectStatus(await target.post("/auth/login", { username: tenant.username, password }), 200);
    const token = second.tokens.access_token;
    expectStatus(await target.delete("/auth/sessions", { token }), 204);
    const made = expectStatus(await target.post("/api-tokens/", { description: "x" }, { token }), 201);
    expectStatus(await target.delete(`/api-tokens/${made.token}`, { token }), 204);
    for (const enabled of [false, true]) {
      expectStatus(await target.put(`/admin/users/${id}`, { enabled }, { token: target.operator.token }), 200);
    }
    const third = expectStatus(await target.post("/auth/login", { username: tenant.username, password }), 200);
    expectStatus(
      await target.send("DELETE", "/auth/account", { token: third.tokens.access_token, body: { password } }),
      204,
    );

    const operatorId = userIdOf(target.operator);
    const about = async () =>
      (await wholeLog(""))
        .filter(({ target: on, actor }) => actor?.user_id === id || on?.id === id)
        .map(({ action, actor }) => [action, actor?.user_id === id ? "self" : actor && "operator"]);
    await expect
      .poll(async () => (await about()).toSorted())
      .toEqual(
        [
          ["user.register", null],
          ["user.verify", null],
          ["user.sign_in", "self"],
          ["workspace.create", "self"],
          ["user.change_password", "self"],
          ["user.sign_in", "self"],
          ["session.end_all", "self"],
          ["api_token.create", "self"],
          ["api_token.revoke", "self"],
          ["user.disable", "operator"],
          ["user.enable", "operator"],
          ["user.sign_in", "self"],
          ["user.delete", "self"],
          ["workspace.delete", "self"],
        ].toSorted(),
      );
    expect(await wholeLog(`&actor=${operatorId}&action=user.disable`)).toContainEqual(
      expect.objectContaining({ target: { type: "user", id }, workspace_id: null }),
    );
  });

  test("has failed sign-ins of an account, many as a number, and nothing that was typed", async () => {
    const tenant = await target.newTenant();
    const id = userIdOf(tenant);
    const typed = uniqueName("canary");
    const attempt = (username: string) => target.post("/auth/login", { username, password: typed });
    for (let i = 0; i < 3; i++) expectError(await attempt(tenant.username), "invalid_credentials");
    expectError(await attempt(`${typed}@example.com`), "invalid_credentials");
    await expect
      .poll(async () => (await wholeLog("&action=user.sign_in")).filter(({ target: on }) => on?.id === id))
      .toContainEqual(expect.objectContaining({ actor: null, outcome: "invalid_credentials", workspace_id: null }));
    expect(JSON.stringify(await wholeLog(""))).not.toContain(typed);
  });

  test("holds no password, no token and no mailed link", async () => {
    const text = JSON.stringify(await wholeLog(""));
    for (const tenant of [owner, colleague, stranger, target.operator]) {
      for (const secret of [tenant.password, tenant.token, tenant.refreshToken, tenant.username]) {
        expect(text).not.toContain(secret);
      }
    }
    expect(text).not.toMatch(/sgt_|eyJ/);
  });
});
