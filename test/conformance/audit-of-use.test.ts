import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectStatus, isoMilliseconds, uuid } from "./client.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";

interface Entry {
  id: string;
  action: string;
  outcome: string;
  count: number;
  target: Record<string, string> | null;
}

describe.runIf(await requireSandboxHost())("the audit log of what is done in a sandbox", () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox();
  });
  afterAll(() => box?.close());

  /** All entries about a sandbox, the oldest first. */
  async function logOf(sandboxId: string): Promise<Entry[]> {
    const path = `/workspaces/${box.owner.workspace}/audit-log?limit=500`;
    const { entries } = expectStatus(await box.target.get(path, box.as()), 200);
    return entries.filter((entry: Entry) => entry.target?.id === sandboxId).toReversed();
  }
  const used = async (sandboxId: string) =>
    (await logOf(sandboxId)).filter(({ action }) => action !== "sandbox.provision");

  test("names who did what to which process or path, and nothing of what went in or came out", async () => {
    const canary = randomUUID();
    const id = await box.provision();
    const { target } = box;
    const path = (rest: string) => `/sandboxes/${id}/${rest}`;
    const as = box.as();
    const ran = await target.post(
      path("exec"),
      { command: ["/bin/sh", "-c", `cat; echo ${canary}`], stdin: canary, env: { SECRET: canary } },
      as,
    );
    const { id: ranId, stdout } = expectStatus(ran, 200);
    expect(stdout).toContain(canary);
    const started = await target.post(path("processes"), { command: ["sleep", "1000"], env: { SECRET: canary } }, as);
    const { id: startedId } = expectStatus(started, 201);
    const ticket: string = expectStatus(await target.post(path(`processes/${startedId}/tickets`), {}, as), 201).ticket;
    expectStatus(await target.post(path(`processes/${startedId}/signal`), { signal: "SIGCONT" }, as), 204);
    expectStatus(await target.delete(path(`processes/${startedId}`), as), 204);
    const bytes = { ...as, headers: { "content-type": "application/octet-stream" } };
    expectStatus(await target.send("PUT", path("files?path=/root/a"), { ...bytes, raw: canary }), 201);
    expectStatus(await target.post(path("files/directories"), { path: "/root/b" }, as), 201);
    expectStatus(await target.send("PATCH", path("files?path=/root/a"), { ...as, body: { mode: "0600" } }), 200);
    expectStatus(await target.post(path("files/move"), { from: "/root/a", to: "/root/c" }, as), 200);
    expectStatus(await target.delete(path("files?path=/root/c"), as), 204);

    const program = { process_id: ranId, program: "sh" };
    const sleep = { process_id: startedId, program: "sleep" };
    const about = async () => (await used(id)).map(({ action, target: on }) => [action, on]);
    await expect.poll(about).toEqual([
      ["sandbox.exec", { type: "sandbox", id, ...program }],
      ["process.start", { type: "sandbox", id, ...sleep }],
      ["process.signal", { type: "sandbox", id, ...sleep }],
      ["process.end", { type: "sandbox", id, ...sleep }],
      ["file.write", { type: "sandbox", id, path: "/root/a" }],
      ["file.write", { type: "sandbox", id, path: "/root/b" }],
      ["file.write", { type: "sandbox", id, path: "/root/a" }],
      ["file.move", { type: "sandbox", id, path: "/root/a", to: "/root/c" }],
      ["file.delete", { type: "sandbox", id, path: "/root/c" }],
    ]);
    const [first] = await used(id);
    expect(first).toEqual({
      id: uuid,
      at: isoMilliseconds,
      workspace_id: box.owner.workspace,
      actor: { user_id: expect.any(String) },
      credential: { type: "session", id: expect.any(String) },
      address: target.clientAddress,
      action: "sandbox.exec",
      target: { type: "sandbox", id, ...program },
      outcome: "success",
      request_id: ran.headers.get("x-request-id"),
      count: 1,
    });
    const text = JSON.stringify(await logOf(id));
    for (const secret of [canary, ticket, "SECRET", box.owner.token]) expect(text).not.toContain(secret);
  });

  test("names the preview of a port, and never its token or link", async () => {
    const id = await box.provision();
    const ports = `/sandboxes/${id}/ports`;
    const preview = expectStatus(await box.target.post(ports, { port: 3000 }, box.as()), 201);
    const link = expectStatus(await box.target.post(`${ports}/${preview.id}/links`, {}, box.as()), 201);
    expectStatus(await box.target.delete(`${ports}/${preview.id}`, box.as()), 204);
    const about = { type: "sandbox", id, preview_id: preview.id };
    await expect
      .poll(async () => (await used(id)).map(({ action, target: on }) => [action, on]))
      .toEqual([
        ["preview.create", { ...about, port: "3000" }],
        ["preview.link", about],
        ["preview.revoke", about],
      ]);
    const text = JSON.stringify(await logOf(id));
    for (const secret of [preview.token, new URL(link.url).searchParams.get("sandgate_link")]) {
      expect(secret).toMatch(/\S{16}/);
      expect(text).not.toContain(secret);
    }
  });

  test("names who moved its end, to an earlier time or a later one", async () => {
    const id = await box.provision();
    const extend = (body: object) => box.target.post(`/sandboxes/${id}/extend`, body, box.as());
    const requests = [await extend({ ttl_seconds: 600, shorten: true }), await extend({ ttl_seconds: 900 })];
    for (const request of requests) expectStatus(request, 200);
    // It ends later already.
    expectStatus(await extend({ ttl_seconds: 60 }), 200);
    const about = { action: "sandbox.extend", target: { type: "sandbox", id }, outcome: "success", count: 1 };
    await expect
      .poll(() => used(id))
      .toMatchObject(requests.map(({ headers }) => ({ ...about, request_id: headers.get("x-request-id") })));
  });

  test("has nothing of reads and of what was refused, but refusals of somebody's rights", async () => {
    const id = await box.provision();
    const { target } = box;
    const path = (rest: string) => `/sandboxes/${id}/${rest}`;
    expectStatus(await target.get(path("processes"), box.as()), 200);
    expectStatus(await target.get(path("files?path=/etc/passwd"), box.as()), 200);
    expectStatus(await target.get(path("files/entries?path=/"), box.as()), 200);
    expectError(await target.delete(path("files?path=/missing"), box.as()), "not_found");
    expectError(await target.delete(path("files?path=/"), box.as()), "conflict");
    expectError(
      await target.post(path("exec"), { command: ["true"], user: "nobody-of-that-name" }, box.as()),
      "validation_error",
    );
    expectError(
      await target.post(path(`processes/${randomUUID()}/signal`), { signal: "SIGTERM" }, box.as()),
      "not_found",
    );
    const limited = { description: "reads", permissions: ["read"] };
    const { token } = expectStatus(await target.post("/api-tokens", limited, { token: box.owner.token }), 201);
    expectError(
      await target.post(path("exec"), { command: ["true"] }, { token, workspace: box.owner.workspace }),
      "forbidden",
    );
    expectStatus(await target.post(path("exec"), { command: ["true"] }, box.as()), 200);
    await expect
      .poll(async () => (await used(id)).map(({ action, outcome }) => `${action} ${outcome}`).toSorted())
      .toEqual(["sandbox.exec forbidden", "sandbox.exec success"]);
  });

  test("has one entry for a command that is repeated with its Idempotency-Key", async () => {
    const id = await box.provision();
    const keyed = { ...box.as(), headers: { "idempotency-key": randomUUID() } };
    const run = () => box.target.post(`/sandboxes/${id}/exec`, { command: ["true"] }, keyed);
    const processId = expectStatus(await run(), 200).id;
    expect(expectStatus(await run(), 200).id).toBe(processId);
    expectStatus(await box.target.post(`/sandboxes/${id}/exec`, { command: ["id"] }, box.as()), 200);
    await expect
      .poll(async () => (await used(id)).map(({ target: on, count }) => [on?.program, count]))
      .toEqual([
        ["true", 1],
        ["id", 1],
      ]);
  });
});
