import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { createServer } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { findNatsServer, startNats } from "@sandgate/test-support/nats";
import { findFreePort, type RunningProcess, startProcess } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterEach, describe, expect } from "vitest";

const root = join(import.meta.dirname, "../../..");
let folder: string;
let running: RunningProcess[];

test.beforeEach(async ({ folder: own }) => {
  folder = own;
  running = [];
});

afterEach(async () => {
  await Promise.all(running.map((each) => each.stop()));
});

/** Starts the launcher on the test's folder with these settings and no others. */
function launch(settings: Record<string, string>): RunningProcess {
  const { PATH, HOME, NODE_COMPILE_CACHE } = process.env;
  const env = {
    PATH,
    HOME,
    NODE_COMPILE_CACHE,
    SANDGATE_DATA: join(folder, "data"),
    SANDGATE_ADMIN_PORT: "0",
    SANDGATE_PULL_PORT: "0",
    // Suites that run meanwhile have the firewall to themselves.
    SANDGATE_ISOLATION: "off",
    ...settings,
  };
  const natsEnd = join(root, "test/support/nats-end.ts");
  const args = ["--import", natsEnd, join(root, "deploy/local/src/main.ts")];
  const started = startProcess(process.execPath, args, { cwd: folder, env });
  running.push(started);
  return started;
}

async function launchUntilReady(settings: Record<string, string>): Promise<RunningProcess> {
  const started = launch(settings);
  const ended = started.exited.then((code) => {
    throw new Error(`ended with ${code}: ${started.output()}`);
  });
  const ready = async () => {
    while (!started.output().includes("Sandgate is ready")) await delay(20);
  };
  await Promise.race([ready(), ended]);
  return started;
}

/** Expects exit code 1 and nothing but this one line. */
async function expectRefusal(started: RunningProcess, line: string | RegExp): Promise<void> {
  expect(await started.exited).toBe(1);
  expect(started.output()).toMatch(/^sandgate: [^\n]+\n$/);
  expect(started.output()).toMatch(line);
}

describe("a start that can't succeed says why in one line", () => {
  test("a database whose key ring is missing or another's: which key it wants", async () => {
    const settings = { SANDGATE_PORT: String(await findFreePort()) };
    await (await launchUntilReady(settings)).stop();
    const file = join(folder, "data/keys.json");
    const { current } = JSON.parse(readFileSync(file, "utf8"));
    rmSync(file);
    await expectRefusal(launch(settings), `The key ring ${file} is missing`);
    writeFileSync(file, JSON.stringify({ current: "other", keys: { other: Buffer.alloc(32).toString("base64") } }));
    await expectRefusal(launch(settings), `sealed with the key "${current}", which the key ring ${file} doesn't hold`);
  });

  test("bad settings of every part, and those of the distributed form", async () => {
    const settings = {
      SANDGATE_PORT: "http",
      SANDGATE_DATABASE: "mysql://localhost",
      SANDGATE_EVENTS: "kafka://localhost",
      SANDGATE_RATE_LIMIT: "x",
      SANDGATE_WORKSPACE_MAX_SANDBOXES: "-1",
      SANDGATE_IMAGE_REGISTRY_URL: "http://image-registry:8081",
    };
    const started = launch(settings);
    await expectRefusal(started, "Settings: ");
    for (const name of Object.keys(settings)) expect(started.output().split(`${name} `), name).toHaveLength(2);
  });

  test("a runtime that it has no adapter for", async () => {
    const settings = { SANDGATE_PORT: String(await findFreePort()), SANDGATE_RUNTIME: "podman:" };
    await expectRefusal(launch(settings), "SANDGATE_RUNTIME must be docker://");
  });

  test("a port in use", async () => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    const port = String(address !== null && typeof address === "object" ? address.port : 0);
    await expectRefusal(launch({ SANDGATE_PORT: port }), `SANDGATE_PORT: port ${port} on 127.0.0.1 is in use`);
    await expectRefusal(
      launch({ SANDGATE_PORT: String(await findFreePort()), SANDGATE_ADMIN_PORT: port }),
      `SANDGATE_ADMIN_PORT: port ${port} on 127.0.0.1 is in use`,
    );
    server.close();
  });

  test("a data folder that can't be made", async () => {
    await expectRefusal(launch({ SANDGATE_DATA: "/dev/null/data" }), "the folder /dev/null/data can't be written");
  });
});

test("the first start shows the operator's password once and makes a private key ring; SIGTERM ends it cleanly", async () => {
  const port = String(await findFreePort());
  const first = await launchUntilReady({ SANDGATE_PORT: port });
  const password = /Sign in as admin@localhost with the password (\S+),/.exec(first.output())?.[1] ?? "";
  expect(password.length).toBeGreaterThanOrEqual(16);
  expect(statSync(join(folder, "data/keys.json")).mode & 0o777).toBe(0o600);
  expect(statSync(join(folder, "data")).mode & 0o777).toBe(0o700);
  expect(await first.stop()).toBe(0);

  const second = await launchUntilReady({ SANDGATE_PORT: port });
  expect(second.output()).not.toContain(password);
  const answer = await fetch(`http://127.0.0.1:${port}/auth/login`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ username: "admin@localhost", password }),
  });
  expect(answer.status).toBe(200);
});

test("a first start that is killed before it shows the password leaves that to the next", async () => {
  const port = String(await findFreePort());
  for (let hasShown = true; hasShown; ) {
    rmSync(join(folder, "data"), { recursive: true, force: true });
    const first = launch({ SANDGATE_PORT: port });
    await until(() => expect(existsSync(join(folder, "data/identity.sqlite"))).toBe(true), { intervalMs: 1 });
    await first.kill();
    // On a busy machine it may have gone further than this test has seen.
    hasShown = first.output().includes("Sign in as");
  }
  const second = await launchUntilReady({ SANDGATE_PORT: port });
  const password = /Sign in as admin@localhost with the password (\S+),/.exec(second.output())?.[1] ?? "";
  const answer = await fetch(`http://127.0.0.1:${port}/auth/login`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ username: "admin@localhost", password }),
  });
  expect(answer.status).toBe(200);
  expect(existsSync(join(folder, "data/first-password"))).toBe(false);
});

test("a start whose output nobody reads stops with one line, and leaves the password to the next", async () => {
  const port = String(await findFreePort());
  const unread = launch({ SANDGATE_PORT: port });
  unread.child.stdout?.destroy();
  await expectRefusal(unread, "standard output was closed");
  const second = await launchUntilReady({ SANDGATE_PORT: port });
  expect(second.output()).toContain("Sign in as admin@localhost with the password");
});

test("a second platform on the same data folder is refused, and a crash of the first lets it in", async () => {
  const first = await launchUntilReady({ SANDGATE_PORT: String(await findFreePort()) });
  const port = String(await findFreePort());
  await expectRefusal(launch({ SANDGATE_PORT: port }), `${join(folder, "data")} is in use by another Sandgate`);
  await first.kill();
  await launchUntilReady({ SANDGATE_PORT: port });
});

test("an operator's command replaces the keys of tokens at once", async () => {
  const [port, adminPort] = [String(await findFreePort()), String(await findFreePort())];
  const password = "the operator's own passphrase";
  const settings = { SANDGATE_PORT: port, SANDGATE_ADMIN_PORT: adminPort, SANDGATE_ADMIN_PASSWORD: password };
  await launchUntilReady(settings);
  const post = (path: string, body: object) =>
    fetch(`http://127.0.0.1:${port}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  const statusOf = async (token: string) => {
    const answer = await fetch(`http://127.0.0.1:${port}/auth/sessions`, {
      headers: { authorization: `Bearer ${token}` },
    });
    await answer.body?.cancel();
    return answer.status;
  };
  const signIn = async () => {
    const answer = await post("/auth/login", { username: "admin@localhost", password });
    const { tokens } = (await answer.json()) as { tokens: { access_token: string; refresh_token: string } };
    return tokens;
  };
  const before = await signIn();
  const program = join(root, "services/identity/src/rotate-keys.ts");
  const rotate = async (...options: string[]) => {
    const env = { ...process.env, SANDGATE_DATA: join(folder, "data") };
    const started = startProcess(process.execPath, [program, ...options], { cwd: folder, env });
    return { code: await started.exited, output: started.output() };
  };
  expect(await rotate("--now")).toMatchObject({ code: 1, output: expect.stringContaining("--emergency") });
  expect(await rotate()).toMatchObject({ code: 0, output: expect.stringContaining("go on") });
  expect(await statusOf(before.access_token)).toBe(200);
  expect(await rotate("--emergency")).toMatchObject({ code: 0, output: expect.stringContaining("ended") });
  await until(async () => expect(await statusOf(before.access_token)).toBe(401));
  expect((await post("/auth/refresh", { refresh_token: before.refresh_token })).status).toBe(401);
  expect(await statusOf((await signIn()).access_token)).toBe(200);
});

test("operators' commands make a user an operator, which the audit log tells, and remove a second factor", async () => {
  const port = String(await findFreePort());
  const password = "the operator's own passphrase";
  await launchUntilReady({ SANDGATE_PORT: port, SANDGATE_ADMIN_PASSWORD: password });
  const program = join(root, "services/identity/src/users.ts");
  const run = async (...options: string[]) => {
    const env = { ...process.env, SANDGATE_DATA: join(folder, "data") };
    const started = startProcess(process.execPath, [program, ...options], { cwd: folder, env });
    return { code: await started.exited, output: started.output() };
  };
  for (const wrong of [[], ["make-operator"], ["remove", "admin@localhost"], ["make-operator", "a", "b"]]) {
    expect(await run(...wrong)).toMatchObject({ code: 1, output: expect.stringContaining("make-operator <username>") });
  }
  expect(await run("make-operator", "admin@localhost")).toMatchObject({
    code: 0,
    output: expect.stringContaining('"operator": true'),
  });
  const base = `http://127.0.0.1:${port}`;
  const signedIn = await fetch(`${base}/auth/login`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ username: "admin@localhost", password }),
  });
  const { tokens } = (await signedIn.json()) as { tokens: { access_token: string } };
  await until(async () => {
    const headers = { authorization: `Bearer ${tokens.access_token}` };
    const log = await fetch(`${base}/admin/audit-log?action=user.make_operator`, { headers });
    expect(await log.json()).toMatchObject({
      entries: [{ target: { type: "user" }, actor: null, outcome: "success" }],
    });
  });
  expect(await run("make-operator", "no+body@example.com")).toMatchObject({
    code: 1,
    output: expect.stringContaining("There is no enabled user of this name"),
  });
  expect(await run("remove-second-factor", "no+body@example.com")).toMatchObject({
    code: 1,
    output: expect.stringContaining("There is no user of this name"),
  });
  expect(await run("remove-second-factor", "admin@localhost")).toMatchObject({
    code: 0,
    output: expect.stringContaining('"second_factor": "none"'),
  });
});

test("the public /readyz says what is unhealthy, and only the admin port says why", async () => {
  const [port, adminPort] = [String(await findFreePort()), String(await findFreePort())];
  await launchUntilReady({
    SANDGATE_PORT: port,
    SANDGATE_ADMIN_PORT: adminPort,
    SANDGATE_SMTP_URL: "smtp://127.0.0.1:1",
  });
  await fetch(`http://127.0.0.1:${port}/auth/password/forgot`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ username: "admin@localhost" }),
  });
  const mailState = async (at: string) => {
    const answer = await fetch(`http://127.0.0.1:${at}/readyz`);
    const { dependencies } = (await answer.json()) as { dependencies: Record<string, string> };
    return dependencies["identity.mail"];
  };
  await until(async () => expect(await mailState(adminPort)).toContain("ECONNREFUSED"));
  expect(await mailState(port)).toBe("unhealthy: see the admin port");
});

describe.runIf(await requireServer("registry", probeRegistry))("the key ring", () => {
  test("loses a key without loss once everything is sealed with another", async () => {
    const user = { username: "ann", password: "the password of a registry" };
    const registry = await startRegistry({ users: [user] });
    try {
      const password = "the operator's own passphrase";
      const [port, adminPort] = [String(await findFreePort()), String(await findFreePort())];
      const settings = {
        SANDGATE_PORT: port,
        SANDGATE_ADMIN_PORT: adminPort,
        SANDGATE_ADMIN_PASSWORD: password,
        SANDGATE_REGISTRY_ALLOW: "127.0.0.1",
        // No mail arrives, so that one stays in the queue.
        SANDGATE_SMTP_URL: "smtp://127.0.0.1:1",
      };
      const call = async (method: string, path: string, body: object, headers: Record<string, string> = {}) => {
        const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
          method,
          headers: { "content-type": "application/json", ...headers },
          body: JSON.stringify(body),
        });
        return { status: answer.status, body: (await answer.json()) as Record<string, string> };
      };
      const first = await launchUntilReady(settings);
      const signedIn = await call("POST", "/auth/login", { username: "admin@localhost", password });
      const { access_token, refresh_token } = JSON.parse(JSON.stringify(signedIn.body.tokens));
      const bearer = { authorization: `Bearer ${access_token}` };
      const create = () => call("POST", "/workspaces", { name: "w" }, { ...bearer, "idempotency-key": "k" });
      const workspace = await create();
      const inWorkspace = { ...bearer, "x-workspace-id": workspace.body.id ?? "" };
      const credential = { name: "r", url: `http://${registry.host}`, ...user };
      const stored = await call("POST", "/registries", credential, inWorkspace);
      expect(stored.status).toBe(201);
      expect((await call("POST", "/auth/second-factor", { password }, bearer)).status).toBe(201);
      await call("POST", "/auth/register", { username: "bob@example.com", password: "the password of a user" });

      const file = join(folder, "data/keys.json");
      const { current: old, keys } = JSON.parse(readFileSync(file, "utf8"));
      const places = [
        "identity.keys",
        "identity.mails",
        "identity.second_factors",
        "image-registry.registries",
        "workspace.kit_answers",
      ];
      expect(sealedWith(old)).toEqual(places);
      await first.stop();
      const next = Buffer.alloc(32, 7).toString("base64");
      writeFileSync(file, JSON.stringify({ current: "next", keys: { ...keys, next } }));
      const second = await launchUntilReady(settings);
      await until(async () => {
        const metrics = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
        const unused = metrics.matchAll(new RegExp(`^sandgate_sealed_values.*key="${old}".* 0$`, "gm"));
        expect([...unused].length).toBeGreaterThanOrEqual(places.length);
        expect(sealedWith(old)).toEqual([]);
      });
      expect(sealedWith("next")).toEqual(places);
      await second.stop();

      writeFileSync(file, JSON.stringify({ current: "next", keys: { next } }));
      await launchUntilReady(settings);
      expect((await call("POST", "/auth/refresh", { refresh_token })).status).toBe(200);
      expect(await create()).toEqual(workspace);
      const database = new DatabaseSync(join(folder, "data/image-registry.sqlite"), { readOnly: true });
      const row = database.prepare("SELECT * FROM registries").get() as { id: string; sealed_password: Uint8Array };
      database.close();
      const place = {
        service: "image-registry",
        table: "registries",
        record: row.id,
        workspace: workspace.body.id ?? "",
      };
      const ring = await openKeyring({ file, create: false });
      expect(Buffer.from(ring.open(row.sealed_password, place)).toString()).toBe(user.password);
    } finally {
      await registry.stop();
    }
  });

  /** The tables with a value that is sealed with this key. */
  function sealedWith(key: string): string[] {
    const head = Buffer.concat([Buffer.from([1, key.length]), Buffer.from(key)]);
    const found = new Set<string>();
    for (const file of readdirSync(join(folder, "data")).filter((name) => name.endsWith(".sqlite"))) {
      const database = new DatabaseSync(join(folder, "data", file), { readOnly: true });
      for (const { name } of database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").all()) {
        for (const row of database.prepare(`SELECT * FROM ${name}`).all()) {
          const isSealed = (value: unknown) =>
            value instanceof Uint8Array && head.equals(value.subarray(0, head.length));
          if (Object.values(row).some(isSealed)) found.add(`${file.replace(".sqlite", "")}.${name}`);
        }
      }
      database.close();
    }
    return [...found].toSorted();
  }
});

test("start.sh refuses an engine that was named and doesn't answer", async () => {
  const { PATH, HOME } = process.env;
  const env = { PATH, HOME, DOCKER_HOST: `unix://${folder}/none.sock`, SANDGATE_DATA: join(folder, "data") };
  const started = startProcess("sh", [join(root, "deploy/local/start.sh")], { cwd: folder, env });
  running.push(started);
  await expectRefusal(started, `no container engine answers at docker://${folder}/none.sock (ENOENT)`);
});

test("start.sh says of an engine that hangs what to do", async () => {
  const socket = join(folder, "engine.sock");
  const engine = createServer().listen(socket);
  await once(engine, "listening");
  try {
    const { PATH, HOME } = process.env;
    const env = { PATH, HOME, DOCKER_HOST: `unix://${socket}`, SANDGATE_DATA: join(folder, "data") };
    const started = startProcess("sh", [join(root, "deploy/local/start.sh")], { cwd: folder, env });
    running.push(started);
    await expectRefusal(
      started,
      `docker://${socket} has not answered within 15 s: try again if it is starting, otherwise`,
    );
  } finally {
    engine.close();
  }
});

test("start.sh asks for no engine where sandboxes are pods", async () => {
  const { PATH, HOME } = process.env;
  const engine = { DOCKER_HOST: `unix://${folder}/none.sock` };
  const env = {
    PATH,
    HOME,
    ...engine,
    SANDGATE_RUNTIME: `kubernetes:${folder}/none`,
    SANDGATE_DATA: join(folder, "data"),
    SANDGATE_LOG_LEVEL: "error",
  };
  const started = startProcess("sh", [join(root, "deploy/local/start.sh")], { cwd: folder, env });
  running.push(started);
  await expectRefusal(started, `no such file or directory, open '${folder}/none'`);
});

test("an engine that shares its kernel with sandboxes as root is warned of while anybody may register", async () => {
  const socket = join(folder, "engine.sock");
  const engine = createHttpServer((request, response) => {
    response.writeHead(request.url?.endsWith("/info") ? 200 : 500, { "content-type": "application/json" });
    response.end(JSON.stringify({ DefaultRuntime: "runc", SecurityOptions: [], message: "not scripted" }));
  });
  await new Promise<void>((resolve) => engine.listen(socket, resolve));
  try {
    const launchWith = async (registration: string) =>
      launchUntilReady({
        SANDGATE_PORT: String(await findFreePort()),
        SANDGATE_RUNTIME: `docker://${socket}`,
        SANDGATE_REGISTRATION: registration,
      });
    const open = await launchWith("open");
    await until(() => expect(open.output()).toContain("neither user namespaces nor gVisor"));
    await open.stop();
    const closed = await launchWith("closed");
    await closed.stop();
    expect(closed.output()).not.toContain("neither user namespaces nor gVisor");
  } finally {
    engine.close();
  }
});

describe.runIf(await requireServer("nats", findNatsServer))("with NATS as its bus", () => {
  test("it ends in order, with exit code 1, when the connection has ended for good", async () => {
    const nats = await startNats();
    try {
      const settings = { SANDGATE_PORT: String(await findFreePort()), SANDGATE_EVENTS: nats.url };
      const started = await launchUntilReady(settings);
      started.child.kill("SIGUSR2");
      expect(await started.exited).toBe(1);
      expect(started.output()).toContain("the connection to NATS ended for good");
      expect(started.output()).not.toContain("did not stop cleanly");
      // What the process had claimed was given back: no relay has to wait for a lease to expire.
      const database = new DatabaseSync(join(folder, "data/workspace.sqlite"), { readOnly: true });
      const held = database.prepare("SELECT name FROM kit_leases WHERE expires_at > ?").all(Date.now());
      database.close();
      expect(held).toEqual([]);
    } finally {
      await nats.stop();
    }
  });
});
