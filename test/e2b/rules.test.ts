import { gzipSync } from "node:zlib";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import { buildImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { Sandbox } from "e2b";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { residentMb } from "../bench/process-figures.ts";
import { expectStatus } from "../conformance/client.ts";
import { createPreviewClient } from "../conformance/preview-client.ts";
import { openProgramHost, type ProgramHost } from "./program.ts";

/** What the control plane says of a sandbox that was created. */
interface Opened {
  sandboxID: string;
  templateID: string;
  envdAccessToken: string;
}

/** Answers a request with its own head; `/socket` leads to a program that sends back what it gets. */
const answer = `head=""
IFS= read -r first
while IFS= read -r line; do
  line="$(printf %s "$line" | tr -d '\\r')"
  [ -z "$line" ] && break
  head="$head
$line"
done
case "$first" in
  *" /socket "*) printf 'HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\nhello'; exec cat ;;
  *) printf 'HTTP/1.1 200 OK\\r\\nContent-Length: %s\\r\\n\\r\\n%s' "$(printf %s "$head" | wc -c)" "$head" ;;
esac
`;

async function serve(sandbox: Sandbox): Promise<void> {
  await sandbox.files.write("/tmp/answer", answer);
  await sandbox.commands.run("nc -ll -p 3000 -e /bin/sh /tmp/answer", { background: true, timeoutMs: 0 });
  await expect.poll(async () => (await sandbox.commands.run("netstat -ltn")).stdout).toContain(":3000");
}

async function readJson<T = { code: unknown }>(response: Response): Promise<T> {
  return (await response.json()) as T;
}

/** Asks as a program without an SDK does. */
function clientOf(host: ProgramHost) {
  const { E2B_API_KEY: apiKey = "" } = host.env;
  const json = { "content-type": "application/json" };
  const control = (
    method: string,
    path: string,
    body?: unknown,
    o: { headers?: Record<string, string>; signal?: AbortSignal } = {},
  ) => {
    const headers = { "x-api-key": apiKey, ...(body !== undefined && json), ...o.headers };
    const payload = body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) };
    return fetch(`${host.platform.url}/e2b${path}`, { method, ...o, headers, ...payload });
  };
  const envd = (
    of: Opened,
    path: string,
    body: string | Uint8Array<ArrayBuffer>,
    headers: Record<string, string> = json,
  ) => {
    const place = { "e2b-sandbox-id": of.sandboxID, "x-access-token": of.envdAccessToken };
    return fetch(`${host.platform.url}/e2b/envd/${path}`, { method: "POST", headers: { ...place, ...headers }, body });
  };
  return {
    control,
    envd,
    async create(body: object = {}): Promise<Opened> {
      const created = await control("POST", "/sandboxes", { templateID: "base", ...body });
      expect(created.status).toBe(201);
      return readJson<Opened>(created);
    },
  };
}

const streamed = { "content-type": "application/connect+json" };

function toFrame(message: object): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(encodeEnvelope(0, new TextEncoder().encode(JSON.stringify(message))));
}

/** The messages of a stream, the one that ends it last. */
async function readFrames(response: Response): Promise<unknown[]> {
  const bytes = Buffer.from(await response.arrayBuffer());
  const messages: unknown[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    messages.push(JSON.parse(bytes.toString("utf8", at + 5, end)));
    at = end;
  }
  return messages;
}

describe.runIf(await requireServer("docker", probeEngine))("programs written for E2B", () => {
  let host: ProgramHost;
  let client: ReturnType<typeof clientOf>;
  let opened: Opened;
  const images: TestImage[] = [];

  beforeAll(async () => {
    host = await openProgramHost({ SANDGATE_FILE_MAX_MB: "64" });
    client = clientOf(host);
    opened = await client.create();
  });
  afterAll(async () => {
    await host?.close();
    for (const image of images) await image.remove();
  });

  async function makeImage(changes: { command?: string[]; reference?: string } = {}): Promise<string> {
    const image = await buildImage(openTestEngine(), { command: ["sleep", "100000"], ...changes });
    images.push(image);
    return image.reference;
  }

  test("a template is an image by its id, its name, or its name and tag, the workspace's own first", async () => {
    const { operator } = host;
    const reference = await makeImage();
    const other = await makeImage({ reference: `sandgate-test/${crypto.randomUUID()}:two` });
    const one = await operator.registerImage(reference, { name: "app" });
    const two = await operator.registerImage(other, { name: "app", is_default: false });
    await operator.registerImage(reference, { name: "off", enabled: false });
    const templateOf = async (templateID: string) => (await client.create({ templateID })).templateID;
    expect(await templateOf(one)).toBe(one);
    expect(await templateOf("app:1")).toBe(one);
    // No registry has the workspace's own, so that it fails; what was asked for is the same.
    const expectTwo = async (templateID: string, kind: string) => {
      const order = { templateID, metadata: { kind } };
      expect((await client.control("POST", "/sandboxes", order)).status).toBe(500);
      const { sandboxes } = expectStatus(await operator.get(`/sandboxes?label=kind:${kind}`, operator.as), 200);
      expect(sandboxes[0].image_id).toBe(two);
    };
    // At once: a registry that can't be reached is asked for half a minute.
    await Promise.all([expectTwo("app", "by-name"), expectTwo("app:two", "by-tag")]);
    const refused = async (templateID: string) => (await client.control("POST", "/sandboxes", { templateID })).status;
    expect(await refused("off")).toBe(400);
    expect(await refused("app:three")).toBe(404);
    expect(await refused("01900000-0000-7000-8000-000000000000")).toBe(404);
    const alias = await client.control("GET", "/templates/aliases/app");
    expect(await alias.json()).toEqual({ templateID: two, public: false });
    expect((await client.control("GET", "/templates/aliases/nothing")).status).toBe(404);
  });

  test("a creation that is sent again with its key answers the same sandbox", async () => {
    const send = (body: object) =>
      client.control("POST", "/sandboxes", body, { headers: { "idempotency-key": "one-creation" } });
    const body = { templateID: "base", metadata: { kind: "once" } };
    const answers = [await readJson<Opened>(await send(body)), await readJson<Opened>(await send(body))];
    expect(answers[0]?.sandboxID).toMatch(/^[a-z0-9]{50}$/);
    expect(answers[1]).toEqual(answers[0]);
    expect(await Sandbox.list({ query: { metadata: { kind: "once" } } }).nextItems()).toHaveLength(1);
    expect((await send({ ...body, timeout: 60 })).status).toBe(409);
  });

  test("a creation that fails says why, and one whose client leaves ends", async () => {
    const { operator } = host;
    await operator.registerImage(await makeImage({ command: ["/no/such/program"] }), { name: "broken" });
    const failed = await client.control("POST", "/sandboxes", { templateID: "broken" });
    expect(failed.status).toBe(500);
    expect(await failed.json()).toEqual({ code: 500, message: expect.stringContaining("start_failed") });
    await operator.registerImage(await makeImage(), { name: "never-ready", readiness_port: 8080 });
    const left = new AbortController();
    const creating = client.control(
      "POST",
      "/sandboxes",
      { templateID: "never-ready", metadata: { kind: "left" } },
      { signal: left.signal },
    );
    const find = async () =>
      expectStatus(await operator.get("/sandboxes?label=kind:left", operator.as), 200).sandboxes[0]?.state;
    await expect.poll(find).toBe("provisioning");
    left.abort();
    await expect(creating).rejects.toThrow();
    await expect.poll(find).toBe("stopped");
  });

  test("errors have E2B's statuses and codes, and say whether to try again", async () => {
    const { control, envd } = client;
    const invalid = await control("POST", `/sandboxes/${opened.sandboxID}/timeout`, { timeout: 0 });
    expect(invalid.status).toBe(400);
    expect(invalid.headers.get("should-retry")).toBe("false");
    expect(await invalid.json()).toEqual({ code: 400, message: expect.stringContaining("timeout") });
    const limited = await host.operator.registerImage(await makeImage(), { name: "limited", ttl_seconds: 120 });
    const tooLong = await control("POST", "/sandboxes", { templateID: limited, timeout: 600 });
    expect(await tooLong.json()).toEqual({ code: 400, message: expect.stringContaining("body.timeout must be 120") });
    const short = await client.create({ templateID: limited });
    const conflict = await control("POST", `/sandboxes/${short.sandboxID}/timeout`, { timeout: 600 });
    expect(conflict.status).toBe(409);
    expect(await conflict.json()).toEqual({ code: 409, message: expect.any(String) });
    const unknown = await envd(opened, "process.Process/SendSignal", JSON.stringify({ process: { pid: 4_000_000 } }));
    expect([unknown.status, (await readJson(unknown)).code]).toEqual([404, "not_found"]);
    const broken = await envd(opened, "filesystem.Filesystem/Stat", "{");
    expect([broken.status, (await readJson(broken)).code]).toEqual([400, "invalid_argument"]);
    expect((await envd(opened, "filesystem.Filesystem/Nothing", "{}")).status).toBe(404);
  });

  test("the content of a file is read in part and compressed, and what is no file is refused", async () => {
    const { envd } = client;
    const query = (path: string) => `files?${new URLSearchParams({ path })}`;
    const read = (path: string, headers: Record<string, string> = {}) => {
      const access = { "e2b-sandbox-id": opened.sandboxID, "x-access-token": opened.envdAccessToken };
      return fetch(`${host.platform.url}/e2b/envd/${query(path)}`, { headers: { ...access, ...headers } });
    };
    const bytes = { "content-type": "application/octet-stream" };
    const written = await envd(opened, query("notes/../notes/one"), "0123456789", bytes);
    expect(await written.json()).toEqual([{ name: "one", type: "file", path: "/root/notes/one" }]);
    const part = await read("/root/notes/one", { range: "bytes=2-4" });
    expect([part.status, part.headers.get("content-range"), await part.text()]).toEqual([206, "bytes 2-4/10", "234"]);
    const zipped = await read("/root/notes/one", { "accept-encoding": "gzip" });
    expect([zipped.headers.get("content-encoding"), await zipped.text()]).toEqual(["gzip", "0123456789"]);
    expect((await read("/root")).status).toBe(400);
    expect((await read("/no/such")).status).toBe(404);
    expect((await envd(opened, query("/root"), "x", bytes)).status).toBe(400);
    expect((await envd(opened, query("/a"), "x", { ...bytes, "x-metadata-a": "b" })).status).toBe(400);
    expect((await envd(opened, query("/a"), "x", { "content-type": "text/plain" })).status).toBe(400);
    expect((await envd(opened, "files?path=/a&username=ben", "x", bytes)).status).toBe(401);
    const form = { "content-type": "multipart/form-data; boundary=b" };
    const partOf = (name: string) =>
      `--b\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n\r\n${name}\r\n`;
    const several = await envd(opened, "files", `${partOf("/tmp/one")}${partOf("two/three")}--b--\r\n`, form);
    expect(await several.json()).toEqual([
      { name: "one", type: "file", path: "/tmp/one" },
      { name: "three", type: "file", path: "/root/two/three" },
    ]);
    expect((await envd(opened, "files?path=/tmp/cut", "--b\r\nContent-Disp", form)).status).toBe(400);
  });

  test("values of variables are in no answer, log or entry of the audit log", async () => {
    const secret = crypto.randomUUID();
    const made = await client.create({ envVars: { HIDDEN: secret } });
    const start = { process: { cmd: "/bin/sh", args: ["-c", "test $HIDDEN = $OTHER"], envs: { OTHER: secret } } };
    const ran = await readFrames(await client.envd(made, "process.Process/Start", toFrame(start), streamed));
    expect(ran.at(-2)).toEqual({ event: { end: { exited: true, status: "exit status 0" } } });
    const sleep = { process: { cmd: "/bin/sleep", args: ["100"], envs: { OTHER: secret } }, tag: "asleep" };
    const left = new AbortController();
    const place = { "e2b-sandbox-id": made.sandboxID, "x-access-token": made.envdAccessToken, ...streamed };
    const begun = await fetch(`${host.platform.url}/e2b/envd/process.Process/Start`, {
      method: "POST",
      headers: place,
      body: toFrame(sleep),
      signal: left.signal,
    });
    await begun.body?.getReader().read();
    left.abort();
    const listed = await (await client.envd(made, "process.Process/List", "{}")).text();
    expect(listed).toContain("asleep");
    const shown = await (await client.control("GET", `/sandboxes/${made.sandboxID}`)).text();
    const log = `/workspaces/${host.operator.as.workspace}/audit-log?limit=500`;
    const readLog = async () => (await host.operator.get(log, host.operator.as)).text;
    await expect.poll(readLog).toContain('"program":"sleep"');
    const audit = await readLog();
    for (const text of [listed, shown, audit, host.platform.process.output()]) expect(text).not.toContain(secret);
  });

  test("a watcher is known by what it was called, and by nothing longer or other", async () => {
    const call = async (method: string, body: object) => {
      const answered = await client.envd(opened, `filesystem.Filesystem/${method}`, JSON.stringify(body));
      return { status: answered.status, body: await readJson<Record<string, unknown>>(answered) };
    };
    const { body } = await call("CreateWatcher", { path: "/tmp" });
    const watcherId = String(body.watcherId);
    expect(await call("GetWatcherEvents", { watcherId })).toEqual({ status: 200, body: {} });
    for (const other of ["", "x", watcherId.slice(1), `${watcherId}${"A".repeat(100_000)}`]) {
      expect(await call("GetWatcherEvents", { watcherId: other })).toMatchObject({ body: { code: "not_found" } });
    }
    expect((await call("RemoveWatcher", { watcherId })).status).toBe(200);
    expect(await call("GetWatcherEvents", { watcherId })).toMatchObject({ body: { code: "not_found" } });
    expect(await call("CreateWatcher", { path: "/etc/passwd" })).toMatchObject({ body: { code: "invalid_argument" } });
    const entries = { path: "/tmp", includeEntry: true };
    expect(await call("CreateWatcher", entries)).toMatchObject({ body: { code: "invalid_argument" } });
  });

  test("a stream that is silent shows that it lives, as often as was asked for", async () => {
    const start = { process: { cmd: "/bin/sh", args: ["-c", "sleep 3"] }, stdin: false };
    const answered = await client.envd(opened, "process.Process/Start", toFrame(start), {
      ...streamed,
      "keepalive-ping-interval": "1",
    });
    const events = await readFrames(answered);
    expect(events[0]).toEqual({ event: { start: { pid: expect.any(Number) } } });
    expect(events).toContainEqual({ event: { keepalive: {} } });
    expect(events.at(-2)).toEqual({ event: { end: { exited: true, status: "exit status 0" } } });
  });

  test("WebSockets reach a port by the sandbox's host", async () => {
    const sandbox = await Sandbox.connect(opened.sandboxID);
    await serve(sandbox);
    const ports = createPreviewClient({ via: host.platform.url, url: `http://${sandbox.getHost(3000)}` });
    const { socket, answer: first } = await ports.upgrade("/socket");
    let text = first;
    socket.on("data", (data) => {
      text += data;
    });
    expect(first).toContain("101 Switching Protocols");
    socket.write("there and back");
    await expect.poll(() => text).toMatch(/hello.*there and back$/s);
    const cut = new Promise((resolve) => socket.once("close", resolve));
    await sandbox.kill();
    await cut;
    opened = await client.create();
  });

  test("hostile requests cost no more than themselves", async () => {
    const { control, envd } = client;
    const before = await residentMb(host.platform.process.child.pid);
    const deep = `${"[".repeat(1_000_000)}${"]".repeat(1_000_000)}`;
    expect((await control("POST", "/sandboxes", `{"templateID":${deep}}`)).status).toBe(400);
    expect((await envd(opened, "process.Process/SendSignal", `{"process":${deep}}`)).status).toBe(400);
    const endless = Buffer.concat([Buffer.from([0, 0xff, 0xff, 0xff, 0xff]), Buffer.alloc(1024)]);
    const cut = Buffer.concat([Buffer.from([0, 0, 0, 0, 100]), Buffer.from('{"process":')]);
    for (const body of [endless, cut, Buffer.from([7])]) {
      const [end] = (await readFrames(await envd(opened, "process.Process/Start", body, streamed))).slice(-1);
      expect(end).toEqual({ error: expect.objectContaining({ code: expect.any(String) }) });
    }
    const bomb = gzipSync(Buffer.alloc(256 * 1024 * 1024), { level: 1 });
    const bytes = { "content-type": "application/octet-stream", "content-encoding": "gzip" };
    expect((await envd(opened, "files?path=/tmp/bomb", bomb, bytes)).status).toBe(400);
    const half = bomb.subarray(0, 1_000);
    expect((await envd(opened, "files?path=/tmp/half", half, bytes)).status).toBe(400);
    expect((await envd(opened, "files?path=/tmp/none", "not zipped", bytes)).status).toBe(400);
    const sandbox = await Sandbox.connect(opened.sandboxID);
    expect((await sandbox.commands.run("ls /tmp")).stdout).toBe("");
    // Far less than what the bomb holds, garbage that is still to be collected included.
    await expect.poll(async () => (await residentMb(host.platform.process.child.pid)) - before).toBeLessThan(160);
    // A parser would make 50 MiB and more of each.
    const flat = Array.from({ length: 16 }, () => `[${"{},".repeat(1_300_000)}{}]`);
    const refused = await Promise.all(
      flat.map((values) => envd(opened, "process.Process/SendSignal", `{"process":${values}}`)),
    );
    expect(refused.map(({ status }) => status)).toEqual(flat.map(() => 400));
    expect((await residentMb(host.platform.process.child.pid)) - before).toBeLessThan(16 * flat.length);
  });

  test("a restart of the platform leaves processes running, which are found again by what they are called", async () => {
    const sandbox = await Sandbox.connect(opened.sandboxID);
    const counting = "while true; do echo tick; sleep 0.2; done";
    const { pid } = await sandbox.commands.run(counting, { background: true, timeoutMs: 0 });
    await host.platform.kill();
    await host.platform.start();
    let text = "";
    const again = await sandbox.commands.connect(pid, {
      onStdout: (data) => {
        text += data;
      },
    });
    await expect.poll(() => text).toContain("tick\ntick\n");
    expect(await again.kill()).toBe(true);
  });
});

describe.runIf(await requireServer("docker", probeEngine))(
  "programs written for E2B, within an operator's limits",
  () => {
    let host: ProgramHost;
    let client: ReturnType<typeof clientOf>;

    beforeAll(async () => {
      host = await openProgramHost({
        SANDGATE_E2B_PUBLIC: "off",
        SANDGATE_WORKSPACE_MAX_SANDBOXES: "1",
        SANDGATE_RATE_LIMIT: "200",
      });
      client = clientOf(host);
    });
    afterAll(() => host?.close());

    test("ports ask for the traffic access token, which no program sees", async () => {
      const sandbox = await Sandbox.create();
      await serve(sandbox);
      const token = sandbox.trafficAccessToken ?? "";
      expect(token).toMatch(/^[\w-]{43}$/);
      const ports = createPreviewClient({ via: host.platform.url, url: `http://${sandbox.getHost(3000)}` });
      expect((await ports.get("/")).status).toBe(403);
      expect((await ports.get("/", { "e2b-traffic-access-token": `${token.slice(0, -2)}AA` })).status).toBe(403);
      expect((await ports.upgrade("/socket")).answer).toContain(" 403 ");
      const given = { "e2b-traffic-access-token": token, "x-access-token": "secret", "x-kept": "shown" };
      const { status, text } = await ports.get("/", given);
      expect(status).toBe(200);
      expect(text.toLowerCase()).toContain("x-kept: shown");
      expect(text.toLowerCase()).not.toContain("access-token");
      expect((await ports.upgrade("/socket", given)).answer).toContain(" 101 ");
    });

    test("over the quota is 429, and so is too much within a minute, with when to try again", async () => {
      const refused = await client.control("POST", "/sandboxes", { templateID: "base" });
      expect(refused.status).toBe(429);
      expect(await refused.json()).toEqual({ code: 429, message: expect.stringContaining("1") });
      const [listed] = await Sandbox.list().nextItems();
      const sandbox = await Sandbox.connect(listed?.sandboxId ?? "");
      const ask = () => client.control("GET", "/v2/sandboxes");
      const limited = await expect.poll(ask).toMatchObject({ status: 429 }).then(ask);
      expect(Number(limited.headers.get("retry-after"))).toBeGreaterThan(0);
      expect(limited.headers.get("should-retry")).toBe("true");
      await expect(sandbox.commands.run("true")).rejects.toThrow(/rate limit/i);
    });
  },
);
