import { randomUUID } from "node:crypto";
import { until } from "@sandgate/test-support/until";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds } from "./client.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";
import type { Tenant } from "./target.ts";

describe.runIf(await requireSandboxHost())("previews of ports", () => {
  let box: Box;
  let path: string;

  beforeAll(async () => {
    box = await openBox();
    path = box.path("ports");
  });
  afterAll(() => box?.close());

  const make = async (body: object = {}, as = box.as()) =>
    expectStatus(await box.target.post(path, { port: 3000, ...body }, as), 201);
  const list = async () => expectStatus(await box.target.get(path, box.as()), 200).previews;
  const revoke = async (id: string) => expectStatus(await box.target.delete(`${path}/${id}`, box.as()), 204);
  afterEach(async () => {
    for (const { id } of await list()) await revoke(id);
  });

  test("one is made, read, listed and revoked, and its token is shown once", async () => {
    const { token, ...preview } = await make({ host_header: "localhost", public: true, ttl_seconds: 600 });
    expect(token).toMatch(/^sgp_[\w-]{43}$/);
    expect(preview).toEqual({
      id: expect.any(String),
      port: 3000,
      url: expect.stringMatching(/^https?:\/\/[a-z2-7]{26}\.[^/]+\/$/),
      public: true,
      host_header: "localhost",
      created_by: expect.any(String),
      created_at: isoMilliseconds,
      expires_at: isoMilliseconds,
    });
    expect(Date.parse(preview.expires_at) - Date.parse(preview.created_at)).toBe(600_000);
    expect(expectStatus(await box.target.get(`${path}/${preview.id}`, box.as()), 200)).toEqual(preview);
    const second = await make();
    expect(second).toMatchObject({ public: false, host_header: "preview" });
    expect(Date.parse(second.expires_at) - Date.parse(second.created_at)).toBe(3_600_000);
    expect((await list()).map(({ id }: { id: string }) => id)).toEqual([preview.id, second.id]);

    await revoke(preview.id);
    expectError(await box.target.delete(`${path}/${preview.id}`, box.as()), "not_found");
    expectError(await box.target.get(`${path}/${preview.id}`, box.as()), "not_found");
    expect((await list()).map(({ id }: { id: string }) => id)).toEqual([second.id]);
  });

  test("what it can't be is invalid", async () => {
    for (const [field, values] of Object.entries({
      port: [0, 65_536, "80", null],
      ttl_seconds: [59, 86_401],
      public: ["yes"],
      host_header: ["example.com"],
    })) {
      for (const value of values) {
        expectInvalid(await box.target.post(path, { port: 80, [field]: value }, box.as()), `body.${field}`);
      }
    }
    expectInvalid(await box.target.post(path, {}, box.as()), "body.port");
  });

  test("a sandbox has 20 at most", async () => {
    for (let i = 0; i < 20; i++) await make();
    const refused = await box.target.post(path, { port: 3000 }, box.as());
    expectError(refused, "conflict");
    expect(refused.body.error.message).toContain("20");
    const [first] = await list();
    await revoke(first.id);
    await make();
  });

  test("the same Idempotency-Key makes one, and conflicts with another request (69)", async () => {
    const headers = { "idempotency-key": randomUUID() };
    const send = (sandbox: string, port: number) =>
      box.target.post(`/sandboxes/${sandbox}/ports`, { port }, { ...box.as(), headers });
    const answers = await Promise.all([send(box.id, 80), send(box.name, 80), send(box.id, 80)]);
    const [first, ...others] = answers.map((answer) => expectStatus(answer, 201));
    for (const other of others) expect(other).toEqual(first);
    expect(await list()).toHaveLength(1);
    expectError(await send(box.id, 81), "conflict");
  });

  test("a link opens one preview, for no longer than that lives", async () => {
    const preview = await make({ ttl_seconds: 120 });
    const links = `${path}/${preview.id}/links`;
    const link = expectStatus(await box.target.post(links, { ttl_seconds: 60 }, box.as()), 201);
    expect(link).toEqual({
      url: expect.stringMatching(/^https?:\/\/[a-z2-7]{26}\.[^/]+\/\?sandgate_link=[\w-]{43}$/),
      expires_at: isoMilliseconds,
    });
    expect(new URL(link.url).origin).toBe(new URL(preview.url).origin);
    expect(Date.parse(link.expires_at)).toBeLessThan(Date.parse(preview.expires_at));
    const longer = expectStatus(await box.target.post(links, undefined, box.as()), 201);
    expect(longer.expires_at).toBe(preview.expires_at);
    for (const ttl_seconds of [59, 3_601]) {
      expectInvalid(await box.target.post(links, { ttl_seconds }, box.as()), "body.ttl_seconds");
    }
    expectError(await box.target.post(`${path}/${randomUUID()}/links`, {}, box.as()), "not_found");
  });

  test("another's sandbox looks like none, and one that has ended is a conflict (1)", async () => {
    const { target, stranger } = box;
    const { id } = await make();
    for (const each of [path, `${path}/${id}`, `${path}/none`]) {
      expectError(await target.get(each, box.as(stranger)), "sandbox_not_found");
    }
    expectError(await target.post(path, { port: 80 }, box.as(stranger)), "sandbox_not_found");
    expectError(await target.post(`${path}/${id}/links`, {}, box.as(stranger)), "sandbox_not_found");
    expectError(await target.delete(`${path}/${id}`, box.as(stranger)), "sandbox_not_found");
    expectError(await target.get(`${path}/none`, box.as()), "not_found");

    const other = await box.provision();
    expectError(await target.get(`/sandboxes/${other}/ports/${id}`, box.as()), "not_found");
    expectStatus(await target.delete(`/sandboxes/${other}`, box.as()), 204);
    const ended = await target.post(`/sandboxes/${other}/ports`, { port: 80 }, box.as());
    expectError(ended, "conflict");
    expect(ended.body.error.message).toContain("stopped_by_user");
  });

  test("it ends no later than its sandbox, also when that end is moved (63)", async () => {
    const id = await box.provision();
    const ports = `/sandboxes/${id}/ports`;
    const made = expectStatus(await box.target.post(ports, { port: 80, ttl_seconds: 3_600 }, box.as()), 201);
    const extend = async (body: object) =>
      expectStatus(await box.target.post(`/sandboxes/${id}/extend`, body, box.as()), 200).expires_at;
    const read = async () => expectStatus(await box.target.get(`${ports}/${made.id}`, box.as()), 200).expires_at;
    const shortened = await extend({ ttl_seconds: 600, shorten: true });
    expect(await read()).toBe(shortened);
    await extend({ ttl_seconds: 7_000 });
    expect(await read()).toBe(made.expires_at);
  });

  test("it ends with its creator's membership, and doesn't come back with it (63)", async () => {
    const { target, owner } = box;
    const member: Tenant = await target.newTenant();
    const members = `/workspaces/${owner.workspace}/members`;
    const join = async (): Promise<string> =>
      expectStatus(await target.post(members, { username: member.username, role: "member" }, box.as()), 201).user_id;
    const userId = await join();
    const { id } = await make({}, { token: member.token, workspace: owner.workspace });
    const stays = await make();
    expectStatus(await target.delete(`${members}/${userId}`, box.as()), 204);
    await until(async () => expectError(await target.get(`${path}/${id}`, box.as()), "not_found"));
    await join();
    expectError(await target.get(`${path}/${id}`, box.as()), "not_found");
    expect((await list()).map((each: { id: string }) => each.id)).toEqual([stays.id]);
  });

  test("the audit log tells who made, opened up and revoked one, and holds no token (70)", async () => {
    const { id, token } = await make();
    const { url } = expectStatus(await box.target.post(`${path}/${id}/links`, {}, box.as()), 201);
    await revoke(id);
    await until(async () => {
      const log = `/workspaces/${box.owner.workspace}/audit-log?limit=20`;
      const { entries } = expectStatus(await box.target.get(log, box.as()), 200);
      const about = { type: "sandbox", id: box.id, preview_id: id };
      for (const action of ["preview.create", "preview.link", "preview.revoke"]) {
        const target = expect.objectContaining(about);
        expect(entries).toContainEqual(expect.objectContaining({ action, target, outcome: "success" }));
      }
      expect(JSON.stringify(entries)).not.toContain(token);
      expect(JSON.stringify(entries)).not.toContain(new URL(url).searchParams.get("sandgate_link"));
    });
  });
});
