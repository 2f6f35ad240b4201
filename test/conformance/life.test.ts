import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uniqueName } from "./client.ts";
import { type HostImage, openSandboxHost, requireSandboxHost } from "./sandbox-host.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

/** Says what it was given, and then runs until it is stopped. */
const script = `
trap 'exit 0' TERM
for each in "$@"; do echo "argument $each"; done
echo "greeting $GREETING"
sleep 3600 &
wait
`;

describe.runIf(await requireSandboxHost())(
  "creation and life",
  () => {
    let target: Target;
    let owner: Tenant;
    let image: HostImage;
    /** A default image whose time to live is an hour, by its id and its name. */
    let imageId: string;
    let imageName: string;

    const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
    const tryProvision = (body: object) => target.post("/sandboxes/provision", body, as(owner));
    const provision = async (body: object = {}) =>
      expectStatus(await tryProvision({ image_id: imageId, ...body }), 201);
    const read = async (id: string) => expectStatus(await target.get(`/sandboxes/${id}`, as(owner)), 200);
    const isReady = async (sandbox_id: string) =>
      expectStatus(await target.post("/sandboxes/wait", { sandbox_id, timeout_seconds: 240 }, as(owner)), 200);
    const ready = async (body: object) => isReady((await provision(body)).id);
    const stop = async (id: string) => expectStatus(await target.delete(`/sandboxes/${id}`, as(owner)), 204);
    const ends = (id: string) =>
      until(
        async () => {
          const record = await read(id);
          expect(["stopped", "failed"]).toContain(record.state);
          return record;
        },
        { intervalMs: 500 },
      );
    /** Its log lines, once this one is among them. */
    const logsWith = (id: string, line: string): Promise<string[]> =>
      until(async () => {
        const { logs } = expectStatus(await target.get(`/sandbox/monitoring/${id}`, as(owner)), 200);
        const lines: string[] = logs.map(({ log }: { log: string }) => log);
        expect(lines).toContain(line);
        return lines;
      });

    beforeAll(async () => {
      image = await openSandboxHost().makeImage({
        command: ["/bin/sh", "/run", "of the image"],
        files: { "/run": script },
      });
      target = await openTarget();
      owner = await target.newTenant();
      imageName = uniqueName("life");
      const body = { name: imageName, image: image.reference, is_default: true, memory_mb: 256, ttl_seconds: 3600 };
      imageId = expectStatus(await target.post("/sandbox-images", body, as(target.operator)), 201).id;
    });
    afterAll(async () => {
      await target?.close();
      await image?.remove();
    });

    test("an image is named: a workspace's own goes before a default, and two of one name conflict", async () => {
      const found = async (image: string) => {
        const { id, image_id } = expectStatus(await tryProvision({ image }), 201);
        await stop(id);
        return image_id;
      };
      expect(await found(imageName)).toBe(imageId);
      expect(await found(imageId)).toBe(imageId);
      const own = { name: imageName, image: "registry.example.com/app" };
      const { id } = expectStatus(await target.post("/sandbox-images", own, as(owner)), 201);
      expect(await found(imageName)).toBe(id);
      expect(await found(imageId)).toBe(imageId);
      expectStatus(await target.post("/sandbox-images", own, as(owner)), 201);
      expectError(await tryProvision({ image: imageName }), "conflict");
      expectError(await tryProvision({ image: uniqueName("none") }), "image_not_found");
      expectInvalid(await tryProvision({}), "body.image_id");
      expectInvalid(await tryProvision({ image: imageName, image_id: imageId }), "body.image");
    });

    test("command and env reach the first process as they are; without a command the image's stays", async () => {
      const env = { GREETING: "grüß $HOME $(GREETING) 'x'" };
      const plain = await provision({ env });
      expect(plain).toMatchObject({ command: null, env_names: ["GREETING"] });
      const command = ["/bin/sh", "/run", "$HOME", "$(GREETING)", "$$", "a b", ""];
      const own = await provision({ command, env });
      expect(own).toMatchObject({ command, env_names: ["GREETING"] });
      const greeting = "greeting grüß $HOME $(GREETING) 'x'";
      expect(await logsWith(plain.id, greeting)).toEqual(["argument of the image", greeting]);
      const given = command.slice(2).map((each) => `argument ${each}`);
      expect(await logsWith(own.id, greeting)).toEqual([...given, greeting]);
      await Promise.all([stop(plain.id), stop(own.id)]);
    });

    test("a bad command, variable or time is refused by its field", async () => {
      const refused = async (body: object, ...fields: string[]) =>
        expectInvalid(await tryProvision({ image: imageId, ...body }), ...fields);
      await refused({ command: [] }, "body.command");
      await refused({ command: "true" }, "body.command");
      await refused({ command: [""] }, "body.command");
      await refused({ command: ["a\0b"] }, "body.command.0");
      await refused({ env: { "A=B": "x" } }, "body.env");
      await refused({ env: { A: "x\0" } }, "body.env.A");
      await refused({ env: { A: "x".repeat(65_536) } }, "body.env");
      await refused({ ttl_seconds: 59 }, "body.ttl_seconds");
      await refused({ ttl_seconds: 3601 }, "body.ttl_seconds");
      await refused({ idle_timeout_seconds: 86_401 }, "body.idle_timeout_seconds");
    });

    test("a program that isn't there fails by its name, with a hint wherever the record is shown", async () => {
      const name = uniqueName("broken");
      const { id } = await provision({ name, command: ["/no/such/program", "argument"] });
      expectError(await target.post("/sandboxes/wait", { sandbox_id: id }, as(owner)), "provisioning_failed");
      const failed = await read(id);
      expect(failed).toMatchObject({
        state: "failed",
        state_reason: "start_failed",
        message: expect.stringContaining("/no/such/program"),
        hint: expect.stringMatching(/\S/),
      });
      const { sandboxes } = expectStatus(await target.get(`/sandboxes?name=${name}`, as(owner)), 200);
      expect(sandboxes).toEqual([failed]);
      const all = expectStatus(await target.get("/admin/sandboxes?state=failed", as(target.operator)), 200);
      expect(all.sandboxes).toContainEqual(failed);
    });

    test("values of variables are shown nowhere", async () => {
      const secret = `s3cret-${crypto.randomUUID()}`;
      const { id, name } = await provision({ env: { TOKEN: secret }, command: ["/no/such/program"] });
      await ends(id);
      const shown = [
        ...(await Promise.all(["/sandboxes", `/sandboxes/${id}`].map((path) => target.get(path, as(owner))))),
        await target.post("/sandboxes/wait", { sandbox_id: name }, as(owner)),
        await target.get(`/workspaces/${owner.workspace}/audit-log`, as(owner)),
        await tryProvision({ image_id: imageId, env: { TOKEN: secret, "": secret } }),
      ];
      for (const { text } of shown) expect(text).not.toContain(secret);
      expect((await read(id)).env_names).toEqual(["TOKEN"]);
    });

    test("sandboxes are listed by the start of their names", async () => {
      const prefix = uniqueName("list");
      const names = [`${prefix}-b`, `${prefix}-a`, prefix];
      for (const name of names) await provision({ name });
      const list = async (query: string) => {
        const { sandboxes } = expectStatus(await target.get(`/sandboxes?${query}`, as(owner)), 200);
        return sandboxes.map(({ name }: { name: string }) => name);
      };
      expect(await list(`name=${prefix}`)).toEqual([...names].reverse());
      expect(await list(`name=${prefix}-`)).toEqual([`${prefix}-a`, `${prefix}-b`]);
      expect(await list(`name=${prefix}&state=stopped`)).toEqual([]);
      expect(await list(`name=${prefix}&limit=1`)).toEqual([prefix]);
      expect(await list(`name=${prefix.slice(1)}`)).toEqual([]);
      await Promise.all(names.map(stop));
    });

    test("an extension counts from now, ends at the image's limit, and shortens only when it may", async () => {
      const before = await ready({ ttl_seconds: 600 });
      const extend = (body: object, id = before.id) => target.post(`/sandboxes/${id}/extend`, body, as(owner));
      const endOf = (record: { expires_at: string }) => Date.parse(record.expires_at);
      expect(expectStatus(await extend({ ttl_seconds: 60 }), 200).expires_at).toBe(before.expires_at);
      const longer = expectStatus(await extend({ ttl_seconds: 1200 }), 200);
      expect(endOf(longer)).toBeGreaterThan(endOf(before) + 500_000);
      expect((await read(before.id)).expires_at).toBe(longer.expires_at);
      const shorter = expectStatus(await extend({ ttl_seconds: 300, shorten: true }), 200);
      expect(endOf(shorter)).toBeLessThan(endOf(longer));
      const beyond = await extend({ ttl_seconds: 3700 });
      expectError(beyond, "conflict");
      expect(beyond.body.error.hint).toContain("3600");
      expectInvalid(await extend({ ttl_seconds: 59 }), "body.ttl_seconds");
      expectInvalid(await extend({}), "body.ttl_seconds");
      expectError(await extend({ ttl_seconds: 60 }, "no-such"), "sandbox_not_found");
      await stop(before.id);
      const ended = await extend({ ttl_seconds: 60 });
      expectError(ended, "conflict");
      expect(ended.body.error.message).toContain("stopped_by_user");
    });

    // Mostly waiting: no time to live or idle time is below a minute.
    describe.concurrent("at the end of a minute", () => {
      test("a time to live ends a sandbox, and one that was extended outlives it", async () => {
        const [short, extended] = await Promise.all([ready({ ttl_seconds: 60 }), ready({ ttl_seconds: 60 })]);
        expect(Date.parse(short.expires_at) - Date.parse(short.timeline.at(-2).at)).toBe(60_000);
        const path = `/sandboxes/${extended.id}/extend`;
        const { expires_at } = expectStatus(await target.post(path, { ttl_seconds: 120 }, as(owner)), 200);
        const ended = await ends(short.id);
        expect(ended).toMatchObject({ state: "stopped", state_reason: "ttl_expired", hint: null });
        expect(ended.stopped_at >= short.expires_at).toBe(true);
        expect(expires_at > extended.expires_at).toBe(true);
        expect((await read(extended.id)).state).toBe("ready");
        const second = await ends(extended.id);
        expect(second).toMatchObject({ state: "stopped", state_reason: "ttl_expired", expires_at });
        expect(second.stopped_at >= expires_at).toBe(true);
      });

      test("an idle one ends, a running command keeps it, and reading logs doesn't", async () => {
        const body = { idle_timeout_seconds: 60 };
        const [idle, used] = await Promise.all([ready(body), ready(body)]);
        expect(idle).toMatchObject({ ...body, last_used_at: idle.ready_at });
        const command = { command: ["sleep", "3600"] };
        const process = await target.post(`/sandboxes/${used.id}/processes`, command, as(owner));
        expectStatus(process, 201);
        await until(
          async () => {
            expectStatus(await target.get(`/sandbox/monitoring/${idle.id}`, as(owner)), 200);
            expect((await read(idle.id)).state).toBe("stopped");
          },
          { intervalMs: 1_000 },
        );
        const ended = await read(idle.id);
        expect(ended).toMatchObject({ state_reason: "idle", last_used_at: idle.ready_at });
        expect(Date.parse(ended.stopped_at) - Date.parse(idle.ready_at)).toBeGreaterThanOrEqual(60_000);
        const running = await read(used.id);
        expect(running).toMatchObject({ state: "ready", last_used_at: isoMilliseconds });
        expect(running.last_used_at > used.ready_at).toBe(true);
        await stop(used.id);
      });
    });
  },
  240_000,
);
