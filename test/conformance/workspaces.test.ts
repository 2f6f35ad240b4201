import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uniqueName, uuid } from "./client.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

let target: Target;
let owner: Tenant;
let admin: Tenant;
let member: Tenant;
let stranger: Tenant;
let team: string;

const as = (tenant: Tenant) => ({ token: tenant.token });

beforeAll(async () => {
  target = await openTarget();
  owner = await target.newTenant();
  admin = await target.newTenant();
  member = await target.newTenant();
  stranger = await target.newTenant();
  team = expectStatus(await target.post("/workspaces", { name: "team" }, as(owner)), 201).id;
  for (const [tenant, role] of [
    [admin, "admin"],
    [member, "member"],
  ] as const) {
    const body = { username: tenant.username, role };
    expectStatus(await target.post(`/workspaces/${team}/members`, body, as(owner)), 201);
  }
});
afterAll(() => target?.close());

describe("workspaces", () => {
  test("every user has one personal workspace", async () => {
    const tenant = await target.newTenant();
    const list = () => target.get("/workspaces", as(tenant));
    expect(expectStatus(await list(), 200)).toEqual({
      workspaces: [
        { id: uuid, name: expect.any(String), role: "owner", created_at: isoMilliseconds, updated_at: isoMilliseconds },
      ],
      next_cursor: null,
      default_workspace_id: tenant.workspace,
    });
    expectStatus(await target.delete(`/workspaces/${tenant.workspace}`, as(tenant)), 204);
    const none = { workspaces: [], next_cursor: null, default_workspace_id: null };
    expect(expectStatus(await list(), 200)).toEqual(none);
  });

  test("nobody makes another's workspace somebody's default one, whatever role they give them", async () => {
    const older = expectStatus(await target.post("/workspaces", { name: "Personal" }, as(stranger)), 201).id;
    const tenant = await target.newTenant();
    const body = { username: tenant.username, role: "owner" };
    expectStatus(await target.post(`/workspaces/${older}/members`, body, as(stranger)), 201);
    const asked = { description: "limited", role: "member" };
    const { token: limited } = expectStatus(await target.post("/api-tokens", asked, as(tenant)), 201);
    for (const token of [tenant.token, limited]) {
      const list = expectStatus(await target.get("/workspaces?limit=1", { token }), 200);
      expect(list.default_workspace_id).toBe(tenant.workspace);
    }
    const bound = { description: "bound", workspace_id: older };
    const { token } = expectStatus(await target.post("/api-tokens", bound, as(tenant)), 201);
    expect(expectStatus(await target.get("/workspaces", { token }), 200).default_workspace_id).toBe(older);
    expectStatus(await target.delete(`/workspaces/${tenant.workspace}`, as(tenant)), 204);
    expect(expectStatus(await target.get("/workspaces", as(tenant)), 200).default_workspace_id).toBeNull();
  });

  test("are created, read and renamed", async () => {
    const created = expectStatus(await target.post("/workspaces", { name: "lab" }, as(owner)), 201);
    expect(created).toEqual({
      id: uuid,
      name: "lab",
      role: "owner",
      created_at: isoMilliseconds,
      updated_at: isoMilliseconds,
    });
    expect(expectStatus(await target.get(`/workspaces/${created.id}`, as(owner)), 200)).toEqual(created);
    const renamed = expectStatus(await target.put(`/workspaces/${created.id}`, { name: "lab 2" }, as(owner)), 200);
    expect(renamed).toEqual({ ...created, name: "lab 2", updated_at: isoMilliseconds });
    expect(renamed.updated_at >= created.updated_at).toBe(true);
  });

  test("have names of 1 to 100 characters without control characters", async () => {
    for (const name of ["", "x".repeat(101), "a\u0000b", "a\nb", 7, null]) {
      expectInvalid(await target.post("/workspaces", { name }, as(owner)), "body.name");
    }
    expectInvalid(await target.post("/workspaces", {}, as(owner)), "body.name");
    for (const name of ["x", "é".repeat(100), "名前 🚀"]) {
      expect(expectStatus(await target.post("/workspaces", { name }, as(owner)), 201).name).toBe(name);
    }
  });

  test("the workspace header is ignored where the path names the workspace", async () => {
    expectStatus(await target.get(`/workspaces/${team}`, { ...as(owner), workspace: "nonsense" }), 200);
  });

  test("a workspace id that is not a UUID is invalid", async () => {
    expectInvalid(await target.get("/workspaces/nonsense", as(owner)), "path.workspace_id");
  });

  test("each role may do what it should, and no more", async () => {
    expect(expectStatus(await target.get(`/workspaces/${team}`, as(member)), 200).role).toBe("member");
    expectError(await target.put(`/workspaces/${team}`, { name: "x" }, as(member)), "insufficient_role");
    expectStatus(await target.put(`/workspaces/${team}`, { name: "team!" }, as(admin)), 200);
    expectError(await target.delete(`/workspaces/${team}`, as(admin)), "insufficient_role");
    expectError(await target.get(`/workspaces/${team}`, as(stranger)), "workspace_forbidden");
    expectError(await target.put(`/workspaces/${team}`, { name: "x" }, as(stranger)), "workspace_forbidden");
    expectError(await target.delete(`/workspaces/${team}`, as(stranger)), "workspace_forbidden");
    expectError(await target.get(`/workspaces/${randomUUID()}`, as(owner)), "workspace_not_found");
  });

  test("the same Idempotency-Key creates one workspace", async () => {
    const headers = { "idempotency-key": uniqueName("key") };
    const [first, second] = await Promise.all([
      target.post("/workspaces", { name: "once" }, { ...as(owner), headers }),
      target.post("/workspaces", { name: "once" }, { ...as(owner), headers }),
    ]);
    expect(expectStatus(second, 201)).toEqual(expectStatus(first, 201));
    expectError(await target.post("/workspaces", { name: "other" }, { ...as(owner), headers }), "conflict");
    // Another user's key of the same text is another key.
    expectStatus(await target.post("/workspaces", { name: "other" }, { ...as(admin), headers }), 201);
  });
});

describe("deleting a workspace", () => {
  test("a 422 has a body of its own", async () => {
    const answer = await target.delete("/workspaces/nonsense", as(owner));
    expect(expectStatus(answer, 422)).toEqual({
      detail: [{ loc: ["path", "workspace_id"], msg: expect.stringMatching(/\S/), type: expect.stringMatching(/\S/) }],
    });
  });

  test("answers 204 without a body; the workspace and its memberships are gone", async () => {
    const { id } = expectStatus(await target.post("/workspaces", { name: "doomed" }, as(owner)), 201);
    const body = { username: member.username, role: "member" };
    expectStatus(await target.post(`/workspaces/${id}/members`, body, as(owner)), 201);
    const answer = await target.delete(`/workspaces/${id}/`, as(owner));
    expect([answer.status, answer.text]).toEqual([204, ""]);
    await expect
      .poll(async () => (await target.get(`/workspaces/${id}`, as(owner))).body?.error?.code)
      .toBe("workspace_not_found");
    expectError(await target.delete(`/workspaces/${id}`, as(owner)), "workspace_not_found");
    for (const tenant of [owner, member]) {
      const { workspaces } = expectStatus(await target.get("/workspaces", as(tenant)), 200);
      expect(workspaces.map((workspace: { id: string }) => workspace.id)).not.toContain(id);
      expectError(await target.get("/sandboxes", { ...as(tenant), workspace: id }), "workspace_forbidden");
    }
  });
});

describe("members", () => {
  const path = () => `/workspaces/${team}/members`;

  test("are listed with their roles, page by page", async () => {
    const { members } = expectStatus(await target.get(path(), as(member)), 200);
    expect(members).toHaveLength(3);
    expect(members).toContainEqual({
      user_id: uuid,
      username: owner.username,
      role: "owner",
      joined_at: isoMilliseconds,
    });
    const first = expectStatus(await target.get(`${path()}?limit=2`, as(member)), 200);
    const rest = expectStatus(
      await target.get(`${path()}?limit=2&cursor=${encodeURIComponent(first.next_cursor)}`, as(member)),
      200,
    );
    expect([...first.members, ...rest.members]).toEqual(members);
    expect(rest.next_cursor).toBeNull();
    expectError(await target.get(path(), as(stranger)), "workspace_forbidden");
  });

  test("are added, changed and removed by an admin, with immediate effect", async () => {
    const joiner = await target.newTenant();
    const inTeam = { token: joiner.token, workspace: team };
    expectError(await target.get("/sandboxes", inTeam), "workspace_forbidden");
    const added = expectStatus(
      await target.post(path(), { username: joiner.username.toUpperCase(), role: "member" }, as(admin)),
      201,
    );
    expect(added).toEqual({ user_id: uuid, username: joiner.username, role: "member", joined_at: isoMilliseconds });
    await expect.poll(async () => (await target.get("/sandboxes", inTeam)).status).toBe(200);
    expectError(await target.post(path(), { username: joiner.username, role: "member" }, as(admin)), "conflict");
    expectError(
      await target.post(path(), { username: stranger.username, role: "member" }, as(joiner)),
      "insufficient_role",
    );
    const changed = expectStatus(await target.put(`${path()}/${added.user_id}`, { role: "admin" }, as(admin)), 200);
    expect(changed).toEqual({ ...added, role: "admin" });
    await expect.poll(async () => (await target.get(`/workspaces/${team}`, as(joiner))).body.role).toBe("admin");
    expectStatus(await target.delete(`${path()}/${added.user_id}`, as(admin)), 204);
    await expect
      .poll(async () => (await target.get("/sandboxes", inTeam)).body?.error?.code)
      .toBe("workspace_forbidden");
    expectError(await target.delete(`${path()}/${added.user_id}`, as(admin)), "member_not_found");
  });

  test("only an owner may promote or demote owners, and the last owner stays", async () => {
    const { members } = expectStatus(await target.get(path(), as(owner)), 200);
    const idOf = (tenant: Tenant) =>
      members.find((item: { username: string }) => item.username === tenant.username).user_id;
    const body = { role: "owner" };
    expectError(await target.put(`${path()}/${idOf(member)}`, body, as(admin)), "insufficient_role");
    expectError(await target.post(path(), { username: stranger.username, ...body }, as(admin)), "insufficient_role");
    expectError(await target.put(`${path()}/${idOf(owner)}`, { role: "member" }, as(admin)), "insufficient_role");
    expectError(await target.delete(`${path()}/${idOf(owner)}`, as(admin)), "insufficient_role");
    expectError(await target.put(`${path()}/${idOf(owner)}`, { role: "admin" }, as(owner)), "conflict");
    expectError(await target.delete(`${path()}/${idOf(owner)}`, as(owner)), "conflict");
    expectStatus(await target.put(`${path()}/${idOf(admin)}`, body, as(owner)), 200);
    expectStatus(await target.put(`${path()}/${idOf(admin)}`, { role: "admin" }, as(owner)), 200);
  });

  test("an owner may leave when there is another, who may take the workspace over", async () => {
    const [creator, heir] = [await target.newTenant(), await target.newTenant()];
    const { id } = expectStatus(await target.post("/workspaces", { name: "handed over" }, as(creator)), 201);
    const { members } = expectStatus(await target.get(`/workspaces/${id}/members`, as(creator)), 200);
    const body = { username: heir.username, role: "owner" };
    const added = expectStatus(await target.post(`/workspaces/${id}/members`, body, as(creator)), 201);
    expectStatus(await target.delete(`/workspaces/${id}/members/${members[0].user_id}`, as(creator)), 204);
    const path = `/workspaces/${id}/members/${added.user_id}`;
    expect(expectStatus(await target.put(path, { role: "owner" }, as(heir)), 200)).toEqual(added);
    expectStatus(await target.delete(`/workspaces/${id}`, as(heir)), 204);
  });

  test("every member may leave", async () => {
    const joiner = await target.newTenant();
    const { user_id } = expectStatus(
      await target.post(path(), { username: joiner.username, role: "member" }, as(owner)),
      201,
    );
    expectStatus(await target.delete(`${path()}/${user_id}`, as(joiner)), 204);
  });

  test("must be verified users with a known role", async () => {
    const username = `${uniqueName("unverified")}@example.com`;
    expectStatus(
      await target.post("/auth/register", { username, password: "correct horse battery", recaptchaToken: "" }),
      201,
    );
    expectError(await target.post(path(), { username, role: "member" }, as(owner)), "member_not_found");
    expectInvalid(await target.post(path(), { username: stranger.username, role: "king" }, as(owner)), "body.role");
    expectInvalid(await target.post(path(), {}, as(owner)), "body.role", "body.username");
    expectError(await target.put(`${path()}/${randomUUID()}`, { role: "member" }, as(owner)), "member_not_found");
    expectError(await target.delete(`${path()}/opaque`, as(owner)), "member_not_found");
  });
});
