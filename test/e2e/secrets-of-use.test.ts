// What goes into sandboxes and opens them, through every route that takes it, in successes and failures.
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { join } from "node:path";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, expectError, expectStatus, type RequestOptions } from "../conformance/client.ts";
import { createPreviewClient } from "../conformance/preview-client.ts";
import { openSocket } from "../conformance/process-socket.ts";
import { killHelper } from "../conformance/sandbox-box.ts";
import { askHost, domain, openProgramHost, type ProgramHost } from "../e2b/program.ts";
import { createCanaries, filesIn, valuesIn } from "../secrets/canaries.ts";

const bytes = { "content-type": "application/octet-stream" };
const server = `while IFS= read -r line; do [ "$line" = "$(printf '\\r')" ] && break; done
printf 'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi'`;

describe.runIf(await requireServer("docker", probeEngine))("secrets of those who use sandboxes", () => {
  const closing = new AsyncDisposableStack();
  const canaries = createCanaries();
  const refusals: { to: string; text: string }[] = [];
  const output: string[] = [];
  const metrics: string[] = [];
  const files: ReturnType<typeof filesIn> = [];
  const values: ReturnType<typeof valuesIn> = [];
  let audit = "";
  let host: ProgramHost;
  let sandboxId: string;

  /** A value that somebody chose, with characters that encodings change. */
  function secretOf(name: string): string {
    const secret = `${name} "${randomBytes(9).toString("base64url")}" ö&%`;
    canaries.add(name, secret);
    return secret;
  }
  /** A value that the platform gave out. */
  function given(name: string, value: string | null | undefined): string {
    expect(value, name).toMatch(/^\S{16,}$/);
    canaries.add(name, value ?? "");
    return value ?? "";
  }
  /** A header's value. */
  const tokenOf = (name: string) => given(name, randomBytes(18).toString("base64url"));

  function keepRefusal(to: string, status: number, text: string): void {
    if (status >= 400) refusals.push({ to: `${to} ${status}`, text });
  }
  async function send(method: string, path: string, o: RequestOptions = {}): Promise<Answer> {
    const answer = await host.operator.send(method, path, { ...host.operator.as, ...o });
    keepRefusal(`${method} ${path.slice(0, 60)}`, answer.status, answer.text);
    return answer;
  }
  const post = (path: string, body: object, o: RequestOptions = {}) => send("POST", path, { ...o, body });
  const at = (rest: string, id = sandboxId) => `/sandboxes/${id}/${rest}`;

  beforeAll(async () => {
    const auditFolder = closing.use(await createTempFolder());
    const settings = {
      SANDGATE_LOG_LEVEL: "trace",
      SANDGATE_AUDIT_FILE: join(auditFolder.path, "audit.jsonl"),
      SANDGATE_REGISTRY_ALLOW: "127.0.0.1",
    };
    host = closing.adopt(await openProgramHost(settings), (each) => each.close());
    given("API token", host.operator.as.token);
    await useCreation();
    await useCommands();
    await useInput();
    await useFiles();
    await usePreviews();
    await useE2b();
    await loseHelper();
    const log = `/workspaces/${host.operator.as.workspace}/audit-log?limit=500`;
    await until(async () => {
      audit = expectStatus(await send("GET", log), 200) && (await send("GET", log)).text;
      for (const action of ["sandbox.exec", "process.start", "file.write", "preview.link"])
        expect(audit).toContain(action);
    });
    metrics.push(await (await fetch(`${host.platform.adminUrl}/metrics`)).text());
    await host.platform.terminate();
    output.push(host.platform.process.output());
    const { dataFolder } = host.platform;
    files.push(...filesIn(dataFolder), ...filesIn(auditFolder.path));
    values.push(...valuesIn(dataFolder));
  });
  afterAll(() => closing.disposeAsync());

  async function useCreation(): Promise<void> {
    const env = () => ({ CANARY: secretOf("variable of a sandbox") });
    const { baseId: image_id } = host;
    const keyed = { headers: { "idempotency-key": randomUUID() } };
    const order = { image_id, env: env() };
    sandboxId = expectStatus(await post("/sandboxes/provision", order, keyed), 201).id;
    expect(expectStatus(await post("/sandboxes/provision", order, keyed), 201).id).toBe(sandboxId);
    expectError(await post("/sandboxes/provision", { image_id, env: env() }, keyed), "conflict");
    expectStatus(await host.operator.wait(sandboxId), 200);
    for (const refused of [
      { env: { "": secretOf("variable without a name") } },
      { env: { CANARY: `${secretOf("variable with a NUL")}\0` } },
      { env: { CANARY: { nested: secretOf("variable that is no text") } } },
      { env: { CANARY: secretOf("variable that is too long").padEnd(70_000) } },
      { env: env(), ttl_seconds: 1 },
    ]) {
      expect((await post("/sandboxes/provision", { image_id, ...refused })).status).toBe(422);
    }
    expectError(await post("/sandboxes/provision", { image: "no-such-image", env: env() }), "image_not_found");
    const absent = await host.operator.registerImage("127.0.0.1:1/absent:1", { name: "absent" });
    for (const failing of [{ image_id: absent }, { image_id, command: ["/no/such/program"] }]) {
      const { id } = expectStatus(await post("/sandboxes/provision", { ...failing, env: env() }), 201);
      await until(async () => expect((await send("GET", `/sandboxes/${id}`)).body.state).toBe("failed"));
    }
  }

  async function useCommands(): Promise<void> {
    const env = () => ({ CANARY: secretOf("variable of a command") });
    const run = (body: object) => post(at("exec"), { command: ["true"], env: env(), ...body });
    const echoed = secretOf("output");
    const ran = expectStatus(await run({ command: ["/bin/cat"], stdin: echoed }), 200);
    expect(ran.stdout).toBe(echoed);
    const key = { headers: { "idempotency-key": randomUUID() } };
    for (const stdin of [echoed, echoed, secretOf("stdin of another body")]) {
      await post(at("exec"), { command: ["/bin/cat"], stdin, env: { CANARY: echoed } }, key);
    }
    expectStatus(await run({ command: ["/no/such/program"] }), 200);
    expectStatus(await run({ command: "sleep 100", timeout_seconds: 1 }), 200);
    expectStatus(await run({ command: "kill -9 $$" }), 200);
    for (const refused of [
      { cwd: "/no/such/folder" },
      { user: "no-such-user" },
      { command: [] },
      { timeout_seconds: 0 },
      { env: { "": secretOf("command's variable without a name") } },
      { env: { CANARY: `${secretOf("command's variable with a NUL")}\0` } },
      { env: { CANARY: [secretOf("command's variable that is no text")] } },
      { env: { CANARY: secretOf("command's variable that is too long").padEnd(200_000) } },
      { stdin: { nested: secretOf("stdin that is no text") } },
    ]) {
      expect((await run(refused)).status).toBe(422);
    }
    await send("POST", at("exec"), {
      raw: `{"command":["true"],"env":{"CANARY":"${tokenOf("variable in broken JSON")}`,
    });
  }

  async function useInput(): Promise<void> {
    const env = { CANARY: secretOf("variable of a process") };
    const { id } = expectStatus(await post(at("processes"), { command: ["/bin/cat"], env, stdin_open: true }), 201);
    const write = (offset: number) =>
      send("POST", at(`processes/${id}/stdin?offset=${offset}`), { headers: bytes, raw: secretOf("input") });
    expectStatus(await write(0), 200);
    expectError(await write(1_000_000), "conflict");
    await post(at("processes"), { command: ["true"], env, cwd: "/no/such/folder" });
    const ticketOf = async () =>
      given("ticket", expectStatus(await post(at(`processes/${id}/tickets`), {}), 201).ticket);
    const attach = (ticket: string, process = id) =>
      openSocket(`${host.platform.url}${at(`processes/${process}/attach`)}?ticket=${ticket}`);
    const ticket = await ticketOf();
    const socket = await attach(ticket);
    socket.type(secretOf("input by a socket"));
    await socket.says("input by a socket");
    for (const [refused, process] of [
      [ticket, id],
      [tokenOf("ticket that is none"), id],
      [await ticketOf(), randomUUID()],
    ]) {
      await expect(attach(String(refused), process)).rejects.toThrow("refused");
    }
    expectStatus(await send("DELETE", at(`processes/${id}`)), 204);
    await socket.closed;
    expectError(await write(1_000_000), "conflict");
  }

  async function useFiles(): Promise<void> {
    const put = (path: string, headers = {}) =>
      send("PUT", at(`files?path=${path}`), { headers: { ...bytes, ...headers }, raw: secretOf("content of a file") });
    expectStatus(await put("/tmp/file"), 201);
    expectStatus(await put("/tmp/file"), 200);
    expectError(await put("/no/such/file"), "not_found");
    expectError(await put("/dev/null"), "conflict");
    expectError(await put("/tmp/file", { "if-none-match": "*" }), "conflict");
    expect((await send("GET", at("files?path=/tmp/file"))).text).toContain("content of a file");
    const archive = { headers: { "content-type": "application/octet-stream" }, raw: secretOf("archive that is none") };
    expectError(await send("PUT", at("files/archive?path=/tmp"), archive), "validation_error");
  }

  async function usePreviews(): Promise<void> {
    expectStatus(await send("PUT", at("files?path=/tmp/server"), { headers: bytes, raw: server }), 201);
    const command = ["nc", "-ll", "-p", "3000", "-e", "/bin/sh", "/tmp/server"];
    expectStatus(await post(at("processes"), { command }), 201);
    const keyed = { headers: { "idempotency-key": randomUUID() } };
    const preview = expectStatus(await post(at("ports"), { port: 3000 }, keyed), 201);
    expect(expectStatus(await post(at("ports"), { port: 3000 }, keyed), 201).token).toBe(preview.token);
    const token = given("token of a preview", preview.token);
    const client = createPreviewClient({ via: host.platform.url, url: preview.url });
    const get = async (status: number, headers: Record<string, string> = {}, path = "/", of = client) => {
      const answer = await of.get(path, headers);
      keepRefusal(`preview ${path.slice(0, 20)}`, answer.status, answer.text);
      expect(answer.status).toBe(status);
      return answer;
    };
    const theirs = () => ({
      authorization: `Bearer ${tokenOf("program's own bearer")}`,
      cookie: `session=${tokenOf("program's own cookie")}`,
    });
    await until(() => get(200, { "x-sandgate-token": token, ...theirs() }));
    await get(401, theirs());
    await get(401, { "x-sandgate-token": tokenOf("token that is none") });
    await get(401, { authorization: `Bearer ${token}` }, `/?token=${tokenOf("token in an address")}`);
    await get(401, { authorization: `Bearer ${host.operator.as.token}` });
    expectError(await send("GET", "/workspaces", { token }), "invalid_token");
    const linkOf = async () => {
      const { search } = new URL(expectStatus(await post(at(`ports/${preview.id}/links`), {}), 201).url);
      given("link", new URLSearchParams(search).get("sandgate_link"));
      return `/deep${search}`;
    };
    const link = await linkOf();
    const [set = ""] = (await get(302, {}, link)).headers["set-cookie"] ?? [];
    const cookie = set.split(";")[0] ?? "";
    given("cookie of a preview", cookie.slice(cookie.indexOf("=") + 1));
    await get(200, { cookie }, "/deep");
    await get(401, {}, link);
    await get(401, { cookie: `__Host-sandgate=${tokenOf("cookie that is none")}` });
    (await client.upgrade("/", { "x-sandgate-token": tokenOf("token of a socket") })).socket.destroy();
    const closed = expectStatus(await post(at("ports"), { port: 3001 }), 201);
    const away = createPreviewClient({ via: host.platform.url, url: closed.url });
    await get(502, { "x-sandgate-token": given("token of a port that nobody has", closed.token) }, "/", away);
    await send("GET", at("ports/3001/http/"), { headers: theirs() });
    await send("GET", at("ports/3000/http/"), { headers: { cookie: theirs().cookie } });
    const late = await linkOf();
    expectStatus(await send("DELETE", at(`ports/${preview.id}`)), 204);
    await until(() => get(404, { "x-sandgate-token": token, ...theirs() }));
    await get(404, { cookie }, late);
  }

  async function useE2b(): Promise<void> {
    const { platform, env, operator } = host;
    const ask = async (
      path: string,
      o: { method?: string; headers: Record<string, string>; body?: string | Uint8Array<ArrayBuffer> },
    ) => {
      const answer = await fetch(`${platform.url}/e2b${path}`, { method: "POST", ...o });
      const text = await answer.text();
      // A stream's error comes in its last message.
      keepRefusal(path, text.includes('"error"') ? 400 : answer.status, text);
      return { status: answer.status, text };
    };
    const create = (body: object, key = env.E2B_API_KEY ?? "") =>
      ask("/sandboxes", {
        headers: { "x-api-key": key, "content-type": "application/json" },
        body: JSON.stringify({ templateID: "base", ...body }),
      });
    const envVars = () => ({ CANARY: secretOf("variable of E2B") });
    const created = await create({ envVars: envVars(), network: { allowPublicTraffic: false } });
    expect(created.status).toBe(201);
    const made = JSON.parse(created.text);
    const access = given("access token of E2B", made.envdAccessToken);
    const traffic = given("traffic token of E2B", made.trafficAccessToken);
    expect((await create({ envVars: envVars() }, `e2b_${tokenOf("key that is none")}`)).status).toBe(401);
    expect((await create({ envVars: envVars(), timeout: 0 })).status).toBe(400);
    expect((await create({ envVars: envVars(), autoPause: true })).status).toBe(400);
    expect((await create({ envVars: { CANARY: [secretOf("E2B's variable that is no text")] } })).status).toBe(400);
    expect((await create({ envVars: envVars(), templateID: "absent" })).status).toBe(500);

    const envd = (path: string, o: { token?: string; message?: object; headers?: Record<string, string> } = {}) =>
      ask(`/envd/${path}`, {
        headers: {
          "e2b-sandbox-id": made.sandboxID,
          "x-access-token": o.token ?? access,
          "content-type": "application/connect+json",
          ...o.headers,
        },
        body: Uint8Array.from(encodeEnvelope(0, new TextEncoder().encode(JSON.stringify(o.message ?? {})))),
      });
    const start = (changes: object, o = {}) => {
      const envs = { CANARY: secretOf("variable of E2B's command") };
      const cmd = { cmd: "/bin/sh", args: ["-c", "exit 3"], envs, ...changes };
      return envd("process.Process/Start", { message: { process: cmd }, ...o });
    };
    expect((await start({})).text).toContain("exit status 3");
    for (const changes of [
      { cwd: "/no/such/folder" },
      { cmd: "/no/such/program" },
      { envs: { "": secretOf("E2B's bad variable") } },
    ]) {
      await start(changes);
    }
    const unknown = Buffer.from("no-such-user:").toString("base64");
    expect((await start({}, { headers: { authorization: `Basic ${unknown}` } })).text).toContain("unauthenticated");
    const noToken = tokenOf("access token that is none");
    expect((await start({}, { token: noToken })).text).toContain("unauthenticated");

    const hosts = { control: `49983-${made.sandboxID}.${domain}`, port: `3000-${made.sandboxID}.${domain}` };
    const askAt = async (name: string, path: string, headers: Record<string, string> = {}) => {
      const answer = await askHost(platform.url, name, path, { headers });
      keepRefusal(`${name.split("-")[0]} ${path.slice(0, 20)}`, answer.status ?? 0, answer.body);
      return answer.status;
    };
    const signed = (path: string, expiration?: number) => {
      const text = [path, "read", "root", access, ...(expiration === undefined ? [] : [expiration])].join(":");
      const digest = createHash("sha256").update(text).digest("base64").replace(/=+$/, "");
      const signature = `v1_${given("signature of E2B", digest)}`;
      const times = expiration === undefined ? {} : { signature_expiration: String(expiration) };
      return `/files?${new URLSearchParams({ path, username: "root", signature, ...times })}`;
    };
    expect(await askAt(hosts.control, signed("/etc/passwd"))).toBe(200);
    expect(await askAt(hosts.control, signed("/no/such"))).toBe(404);
    expect(await askAt(hosts.control, signed("/etc/passwd", 1))).toBe(401);
    expect(await askAt(hosts.control, signed("/etc/passwd").replace("passwd", "group"))).toBe(401);
    expect(await askAt(hosts.port, "/", { "e2b-traffic-access-token": traffic })).toBe(502);
    expect(await askAt(hosts.port, "/", { "e2b-traffic-access-token": tokenOf("traffic token that is none") })).toBe(
      403,
    );

    const { sandboxes } = expectStatus(await operator.get("/sandboxes?state=ready", operator.as), 200);
    const { id } = sandboxes.find((each: { id: string }) => each.id !== sandboxId);
    expectStatus(await send("DELETE", `/sandboxes/${id}`), 204);
    expect(await askAt(hosts.control, signed("/etc/passwd"))).toBe(502);
    await start({});
    expect(await askAt(hosts.port, "/", { "e2b-traffic-access-token": traffic })).toBe(502);
  }

  /** While commands with secrets run. */
  async function loseHelper(): Promise<void> {
    const env = () => ({ CANARY: secretOf("variable of what is lost") });
    const lost = post(at("exec"), { command: ["/bin/sleep", "1000"], stdin: secretOf("lost stdin"), env: env() });
    const { id } = expectStatus(await post(at("processes"), { command: ["/bin/sleep", "1000"], env: env() }), 201);
    await until(async () => {
      const { processes } = expectStatus(await send("GET", at("processes?state=running")), 200);
      expect(processes.filter(({ command }: { command: string[] }) => command[1] === "1000")).toHaveLength(2);
    });
    await post(at("processes"), { command: killHelper });
    await lost;
    await until(async () => expect((await send("GET", at(`processes/${id}`))).body.state).toBe("lost"));
    expectStatus(await post(at("exec"), { command: ["true"], env: env() }), 200);
    expectStatus(await send("DELETE", `/sandboxes/${sandboxId}`), 204);
    expectError(await post(at("exec"), { command: ["true"], env: env() }), "conflict");
  }

  test("are in no line of the log", () => {
    const lines = output.join("").split("\n");
    expect(lines.length).toBeGreaterThan(500);
    expect(lines.filter((line) => canaries.findIn(line).length > 0)).toEqual([]);
  });

  test("are in no answer that refuses something", () => {
    expect(refusals.length).toBeGreaterThan(50);
    const leaks = refusals.flatMap(({ to, text }) => canaries.findIn(text).map((name) => `${to}: ${name}`));
    expect(leaks).toEqual([]);
  });

  test("are in no entry of the audit log, and in no metric", () => {
    expect(canaries.findIn(audit)).toEqual([]);
    expect(metrics.flatMap((text) => canaries.findIn(text))).toEqual([]);
  });

  test("are in no table in clear", () => {
    expect(new Set(values.map(({ column }) => column)).size).toBeGreaterThan(60);
    const leaks = values.flatMap(({ column, value }) => canaries.findIn(value).map((name) => `${column}: ${name}`));
    expect([...new Set(leaks)]).toEqual([]);
  });

  test("are in no file of the platform's", () => {
    expect(files.map(({ path }) => path)).toEqual(expect.arrayContaining(["sandbox.sqlite", "audit.jsonl"]));
    expect(
      files.flatMap(({ path, bytes: content }) => canaries.findIn(content).map((name) => `${path}: ${name}`)),
    ).toEqual([]);
  });
});
