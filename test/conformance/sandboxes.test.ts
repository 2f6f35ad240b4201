import { randomUUID } from "node:crypto";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uniqueName, uuid } from "./client.ts";
import { type HostImage, openSandboxHost, requireSandboxHost, type SandboxHost, unseen } from "./sandbox-host.ts";
import { openTarget, requireSuiteSettings, type Target, type Tenant } from "./target.ts";

const hasSuiteSettings = await requireSuiteSettings();

describe.runIf(await requireSandboxHost())(
  "sandboxes",
  () => {
    let target: Target;
    let owner: Tenant;
    let stranger: Tenant;
    let host: SandboxHost;
    let image: HostImage;

    const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
    const provision = async (body: object = {}, tenant = owner) =>
      expectStatus(
        await target.post("/sandboxes/provision", { image_id: target.defaultImageId, ...body }, as(tenant)),
        201,
      );
    const wait = (sandbox_id: string, timeout_seconds = 240, tenant = owner) =>
      target.post("/sandboxes/wait", { sandbox_id, timeout_seconds }, as(tenant));
    const read = async (id: string) => expectStatus(await target.get(`/sandboxes/${id}`, as(owner)), 200);
    const reaches = (id: string, state: string, reason: string | null) =>
      until(async () => expect(await read(id)).toMatchObject({ state, state_reason: reason }));
    /** A default image over one of the test's own: the operator may. */
    const imageOf = async (body: object): Promise<string> =>
      expectStatus(
        await target.post(
          "/sandbox-images",
          { name: uniqueName("i"), image: image.reference, is_default: true, memory_mb: 256, ...body },
          as(target.operator),
        ),
        201,
      ).id;

    beforeAll(async () => {
      host = openSandboxHost();
      image = await host.makeImage({
        command: ["/bin/sh", "/run"],
        files: {
          "/run": "trap '' TERM\nwhile [ ! -e /stop ]; do sleep 0.1; done\n",
        },
      });
      target = await openTarget();
      [owner, stranger] = [await target.newTenant(), await target.newTenant()];
    });
    afterAll(async () => {
      await target?.close();
      await image?.remove();
    });

    test("provisioning answers immediately with the whole record", async () => {
      const name = uniqueName("web");
      const labels = { app: "shop", "example.com/tier": "front" };
      const record = await provision({ name, labels });
      expect(record).toEqual({
        id: uuid,
        name,
        workspace_id: owner.workspace,
        image_id: target.defaultImageId,
        image: expect.stringMatching(/\S/),
        image_digest: null,
        state: "provisioning",
        state_reason: null,
        message: null,
        hint: null,
        exit_code: null,
        labels,
        command: null,
        env_names: [],
        memory_mb: expect.any(Number),
        readiness_port: 8080,
        ttl_seconds: null,
        idle_timeout_seconds: null,
        created_by: uuid,
        created_at: isoMilliseconds,
        updated_at: isoMilliseconds,
        last_used_at: null,
        ready_at: null,
        expires_at: null,
        stopped_at: null,
        pull: null,
        timeline: [{ phase: "accepted", at: isoMilliseconds }],
      });
      const ready = expectStatus(await wait(name), 200);
      expect(ready).toMatchObject({
        id: record.id,
        state: "ready",
        ready_at: isoMilliseconds,
        image_digest: expect.stringMatching(/^sha256:[0-9a-f]{64}$/),
      });
      expect(ready.timeline.map((entry: { phase: string }) => entry.phase)).toEqual([
        "accepted",
        "image_pulled",
        "created",
        "started",
        "ready",
      ]);
      expect(await read(name)).toEqual(ready);
      for (let times = 0; times < 2; times++) {
        expectStatus(await target.delete(`/sandboxes/${name}`, as(owner)), 204);
      }
      await reaches(record.id, "stopped", "stopped_by_user");
      expectStatus(await target.delete(`/sandboxes/${record.id}`, as(owner)), 204);
      expectError(await wait(record.id), "conflict");
      expect((await read(name)).stopped_at).toEqual(isoMilliseconds);
    });

    test("names are validated; one is generated if absent", async () => {
      for (const name of [
        "",
        "UPPER",
        "-a",
        "a-",
        "a".repeat(64),
        "a_b",
        randomUUID(),
        "00000000-0000-0000-0000-000000000000",
        5,
      ]) {
        const answer = await target.post("/sandboxes/provision", { image_id: target.defaultImageId, name }, as(owner));
        expectInvalid(answer, "body.name");
      }
      expectInvalid(await target.post("/sandboxes/provision", {}, as(owner)), "body.image_id");
      expectInvalid(
        await target.post("/sandboxes/provision", { image_id: 1, labels: { a: 1 } }, as(owner)),
        "body.image_id",
        "body.labels.a",
      );
      const { id, name } = await provision();
      expect(name).toMatch(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
      expectStatus(await target.delete(`/sandboxes/${id}`, as(owner)), 204);
    });

    test("a name is free again once its sandbox is stopping", async () => {
      const name = uniqueName("again");
      const first = await provision({ name });
      expectStatus(await target.delete(`/sandboxes/${name}`, as(owner)), 204);
      const second = await provision({ name });
      expect((await read(name)).id).toBe(second.id);
      expect((await read(first.id)).id).toBe(first.id);
      // Another workspace's names are its own.
      const theirs = await provision({ name }, stranger);
      expectStatus(await target.delete(`/sandboxes/${second.id}`, as(owner)), 204);
      expectStatus(await target.delete(`/sandboxes/${theirs.id}`, as(stranger)), 204);
    });

    test("many waits of one sandbox are answered", async () => {
      const { id } = await provision();
      const answers = await Promise.all(Array.from({ length: 20 }, () => wait(id)));
      expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200]));
      expectStatus(await target.delete(`/sandboxes/${id}`, as(owner)), 204);
    });

    test("a container that exits has failed, even with code 0", async () => {
      const shortLived = await host.makeImage({ command: ["/bin/sh", "-c", "exit 0"] });
      const { id } = await provision({ image_id: await imageOf({ image: shortLived.reference, readiness_port: 80 }) });
      expectError(await wait(id), "provisioning_failed");
      expect(await read(id)).toMatchObject({ state: "failed", state_reason: "exited", exit_code: 0 });
      await shortLived.remove();
    });

    test("a command that is not in the image fails, and says so", async () => {
      const broken = await host.makeImage({ command: ["/no/such/program"] });
      const { id } = await provision({ image_id: await imageOf({ image: broken.reference }) });
      const failed = await wait(id);
      expectError(failed, "provisioning_failed");
      expect(failed.body.error.message).toContain("lacks its command");
      expect(await read(id)).toMatchObject({ state: "failed", state_reason: "start_failed" });
      await broken.remove();
    });

    test("lists newest first, by state and label, page by page", async () => {
      const tenant = await target.newTenant();
      const made = [];
      for (let i = 0; i < 4; i++) {
        made.push((await provision({ labels: { n: String(i), all: "yes" } }, tenant)).id);
      }
      const list = async (query: string) => expectStatus(await target.get(`/sandboxes${query}`, as(tenant)), 200);
      const ids = (body: { sandboxes: { id: string }[] }) => body.sandboxes.map((sandbox) => sandbox.id);
      expect(ids(await list(""))).toEqual([...made].reverse());
      expect(ids(await list("?label=n:2"))).toEqual([made[2]]);
      expect(ids(await list("?label=n:2&label=all:no"))).toEqual([]);
      expect(ids(await list("?label=n:1&label=n:2"))).toEqual([]);
      expect(ids(await list("?label=n:2&label=n:2"))).toEqual([made[2]]);
      const page = await list("?limit=3&label=all:yes");
      expect(ids(page)).toEqual([...made].reverse().slice(0, 3));
      const rest = await list(`?limit=3&label=all:yes&cursor=${encodeURIComponent(page.next_cursor)}`);
      expect(ids(rest)).toEqual([made[0]]);
      expect(rest.next_cursor).toBeNull();
      expect(ids(await list("?state=failed,stopped"))).toEqual([]);
      expect(ids(await list("?state=provisioning,ready")).length).toBe(4);
      expectInvalid(await target.get("/sandboxes?state=ready,sleeping", as(tenant)), "query.state");
      expectInvalid(await target.get("/sandboxes?label=nocolon", as(tenant)), "query.label");
      const tooMany = Array.from({ length: 1_100 }, (_, i) => `label=${i}:`).join("&");
      expectInvalid(await target.get(`/sandboxes?${tooMany}`, as(tenant)), "query.label");
      expectInvalid(await target.get("/sandboxes?limit=0&cursor=x", as(tenant)), "query.limit");
      expect(ids(expectStatus(await target.get("/sandboxes", as(stranger)), 200))).not.toContain(made[0]);
      await Promise.all(made.map((id) => target.delete(`/sandboxes/${id}`, as(tenant))));
    });

    test("the same Idempotency-Key creates one sandbox", async () => {
      const options = { ...as(owner), headers: { "idempotency-key": uniqueName("key") } };
      const body = { image_id: target.defaultImageId };
      const answers = await Promise.all(
        Array.from({ length: 5 }, () => target.post("/sandboxes/provision", body, options)),
      );
      const ids = new Set(answers.map((answer) => expectStatus(answer, 201).id));
      expect(ids.size).toBe(1);
      expectError(await target.post("/sandboxes/provision", { ...body, name: "other" }, options), "conflict");
      for (const id of ids) {
        expectStatus(await target.delete(`/sandboxes/${id}`, as(owner)), 204);
      }
    });

    // Mostly waiting: for a stop's grace, for the readiness timeout, for the engine.
    describe.concurrent("at the same time", () => {
      test("an exec counts as readiness without a port", async () => {
        const { id } = await provision({ image_id: await imageOf({}) });
        expect(expectStatus(await wait(id), 200)).toMatchObject({ readiness_port: null, state: "ready" });
        // It ignores SIGTERM, so the stop takes the whole grace period.
        expectStatus(await target.delete(`/sandboxes/${id}`, as(owner)), 204);
        expect((await read(id)).state).toBe("stopping");
        await reaches(id, "stopped", "stopped_by_user");
        expect((await read(id)).exit_code).toBe(137);
      });

      test.runIf(hasSuiteSettings)("waiting answers not ready, failed or conflict", async () => {
        const neverReady = await imageOf({ readiness_port: 9 });
        const { id } = await provision({ image_id: neverReady });
        expectError(await wait(id, 1), "sandbox_not_ready");
        const stopped = wait(id);
        expectStatus(await target.delete(`/sandboxes/${id}`, as(owner)), 204);
        expectError(await stopped, "conflict");
        const second = await provision({ image_id: neverReady });
        const failed = await wait(second.id);
        expectError(failed, "provisioning_failed");
        expect(failed.body.error.message).toMatch(/not ready within \d+ s/);
        expect(await read(second.id)).toMatchObject({ state: "failed", state_reason: "readiness_timeout" });
        for (const timeout_seconds of [0, 241, 1.5, "1"]) {
          expectInvalid(
            await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds }, as(owner)),
            "body.timeout_seconds",
          );
        }
        expectInvalid(await target.post("/sandboxes/wait", {}, as(owner)), "body.sandbox_id");
        expectError(await wait("no-such"), "sandbox_not_found");
        expectError(await wait(id, 1, stranger), "sandbox_not_found");
      });

      test("a sandbox over its memory limit fails as out of memory", async () => {
        const greedy = await host.makeImage({
          command: ["/bin/sh", "-c", "sleep 1; x=0123456789abcdef; while :; do x=$x$x; done"],
        });
        const { id } = await provision({ image_id: await imageOf({ image: greedy.reference }) });
        await reaches(id, "failed", "out_of_memory");
        await greedy.remove();
      });

      test("a workspace that its creator left is taken over by an owner who provisions there", async () => {
        const [creator, heir, member] = [await target.newTenant(), await target.newTenant(), await target.newTenant()];
        const inTeam = (tenant: Tenant) => ({ token: tenant.token, workspace: creator.workspace });
        const members = `/workspaces/${creator.workspace}/members`;
        for (const [{ username }, role] of [
          [heir, "owner"],
          [member, "member"],
        ] as const) {
          expectStatus(await target.post(members, { username, role }, as(creator)), 201);
        }
        const { members: all } = expectStatus(await target.get(members, as(creator)), 200);
        const { user_id } = all.find(({ username }: { username: string }) => username === creator.username);
        expectStatus(await target.delete(`${members}/${user_id}`, as(creator)), 204);
        const body = { image_id: target.defaultImageId };
        expectError(await target.post("/sandboxes/provision", body, inTeam(member)), "provisioning_failed");
        for (const tenant of [heir, member]) {
          const { id } = expectStatus(await target.post("/sandboxes/provision", body, inTeam(tenant)), 201);
          expectStatus(await target.delete(`/sandboxes/${id}`, inTeam(tenant)), 204);
        }
      });

      test.runIf(hasSuiteSettings)("a workspace's quota is enforced", async () => {
        const tenant = await target.newTenant();
        const answers = await Promise.all(
          Array.from({ length: 22 }, () =>
            target.post("/sandboxes/provision", { image_id: target.defaultImageId }, as(tenant)),
          ),
        );
        const refused = answers.filter((answer) => answer.status !== 201);
        expect(refused).toHaveLength(2);
        for (const answer of refused) {
          expectError(answer, "provisioning_failed");
          expect(answer.body.error.hint).toMatch(/20 sandboxes/);
        }
        expectStatus(await target.delete(`/workspaces/${tenant.workspace}`, { token: tenant.token }), 204);
        const { list } = host;
        if (!list) return;
        await until(async () => expect(await list({ workspace: tenant.workspace })).toEqual([]), { intervalMs: 500 });
      });

      test("deleting the workspace removes its containers", async ({ skip }) => {
        const { list } = host;
        if (!list) return skip(unseen);
        const tenant = await target.newTenant();
        const { id } = await provision({}, tenant);
        expectStatus(await wait(id, 240, tenant), 200);
        expect(await list({ workspace: tenant.workspace })).toHaveLength(1);
        expectStatus(await target.delete(`/workspaces/${tenant.workspace}`, { token: tenant.token }), 204);
        await until(async () => expect(await list({ workspace: tenant.workspace })).toEqual([]), { intervalMs: 200 });
        expectError(await target.get(`/sandboxes/${id}`, as(tenant)), "workspace_forbidden");
      });
    });
  },
  90_000,
);
