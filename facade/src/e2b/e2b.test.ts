import { execFile } from "node:child_process";
import { hash, randomBytes, randomUUID } from "node:crypto";
import { cp, glob, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { promisify } from "node:util";
import { encodeEnvelope } from "@connectrpc/connect/protocol";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { Permission } from "@sandgate/proto/common/v1/access";
import { EntryType } from "@sandgate/proto/helper/v1/file";
import { OutputStream } from "@sandgate/proto/helper/v1/process";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  apiToken,
  at,
  boundApiToken,
  openTestPlatform,
  sandboxMessage,
  type TestPlatform,
  userId,
  workspaceId,
} from "../test-platform.ts";
import { createNames } from "./names.ts";

const keys: [Buffer, Buffer] = [randomBytes(32), randomBytes(32)];
const { id: sandboxId } = sandboxMessage();
const tokenId = "01900000-0000-7000-8000-0000000000ff";
const expiresAt = { seconds: BigInt(Math.floor(Date.now() / 1000)) + 300n, nanos: 0 };
const ready = { ...sandboxMessage(), expiresAt, imageName: "base", labels: { purpose: "tests" } };

const link = { path: Buffer.from("/link"), type: EntryType.SYMLINK, symlinkTarget: Buffer.from("elsewhere") };

let platform: TestPlatform;
let name: string;
let accessToken: string;
let isRevoked = false;
let isOver = false;
let isAway = false;
/** What keeps files from being read and made, and links from being followed. */
let obstacle: DomainError | undefined;
/** The time to live of the image, in seconds. */
const longest = 120;
/** The times to live that were asked for, by the key of the request. */
const ordered = new Map<string, number | undefined>();
/** What a reader of the output of a process gets: text, or how many bytes are gone. */
let output: (string | number)[] = [];
/** What a process has taken of its input. */
let input = "";
/** What another replica writes to it at the same moment as this one. */
let others = "";
/** What was written of files, and which of them to their end. */
const written: string[] = [];
const committed: string[] = [];
/** What identity answers, and was asked for. */
let usable: string[] = [];
const asked: unknown[] = [];

beforeAll(async () => {
  const names = createNames({ sandbox: { deriveKeys: async () => ({ keys }) } as never });
  name = await names.toSandboxName(sandboxId);
  accessToken = await names.toAccessToken(sandboxId, tokenId);
  platform = await openTestPlatform({
    env: { SANDGATE_E2B_DOMAIN: "e2b.test:8443" },
    handlers: {
      identity: {
        verifyApiToken: ({ token, tokenId: id }) => {
          if (isRevoked || ![apiToken, ""].includes(token) || !["", tokenId].includes(id)) {
            throw new DomainError("INVALID_TOKEN", "The API token is not valid.");
          }
          return { tokenId, userId, permissions: platform.state.tokenPermissions };
        },
        listUsableApiTokens({ userIds, workspaceId, permission }) {
          asked.push({ userIds, workspaceId, permission });
          return { tokenIds: usable };
        },
      },
      workspace: {
        listWorkspaces: () => ({
          // As for a token with a role, and with another's workspace before the default one.
          workspaces: [{ id: randomUUID(), name: "one", role: 1, createdAt: at, updatedAt: at }],
          defaultWorkspaceId: workspaceId,
        }),
        listMemberIds: () => ({ userIds: ["ben", userId] }),
      },
      sandbox: {
        deriveKeys: () => ({ keys }),
        getInstallation: () => ({ installationId: "i", cpus: 2, diskMb: 1024 }),
        getSandboxWorkspace: () => ({ workspaceId, createdBy: userId }),
        getSandbox: () => ({ sandbox: isOver ? { ...ready, expiresAt: at } : ready }),
        provisionSandbox({ ttlSeconds, env }, { requestHeader }) {
          if (env.LARGE) throw invalid("env", "must have 65536 bytes of names and values or fewer");
          const idempotencyKey = requestHeader.get("idempotency-key") ?? "none";
          const isRepeated = idempotencyKey !== "none" && ordered.has(idempotencyKey);
          if (isRepeated && ordered.get(idempotencyKey) !== ttlSeconds) {
            throw new DomainError("CONFLICT", "This Idempotency-Key was used for a different request.");
          }
          if (ttlSeconds !== undefined && ttlSeconds > longest) {
            throw invalid("ttl_seconds", `must be ${longest} or less, the time to live of the image`);
          }
          ordered.set(idempotencyKey, ttlSeconds);
          return { sandbox: ready };
        },
        waitSandboxes: () => ({ sandboxes: [ready] }),
        listSandboxes() {
          if (isAway) throw new DomainError("UPSTREAM_ERROR", "The engine is away.");
          return { sandboxes: [ready] };
        },
      },
      processes: {
        listProcesses: ({ pid }) => ({ processes: pid === 7 ? [{ id: tokenId, pid, stdinOpen: true }] : [] }),
        // As the helper does, with a pipe that never takes more than 3 bytes.
        async writeStdin({ data, offset = BigInt(input.length) }) {
          await setImmediate();
          const taken = Buffer.from(data)
            .subarray(input.length - Number(offset))
            .toString()
            .slice(0, 3);
          input += taken + others;
          return { offset: BigInt(input.length), ...(others !== "" && { taken: BigInt(taken.length) }) };
        },
        async *readOutput() {
          for (const each of output) {
            const data = { stream: OutputStream.STDOUT, data: Buffer.from(String(each)) };
            if (typeof each === "number")
              yield { event: { event: { case: "gapBytes", value: BigInt(each) } } } as const;
            else yield { event: { event: { case: "output", value: data } } } as const;
          }
          yield { event: { event: { case: "exit", value: {} } } } as const;
        },
      },
      files: {
        getUser: () => ({ home: "/root", folder: "/" }),
        async *readFile() {
          if (obstacle) throw obstacle;
          yield { part: { case: "start", value: { length: 0n } } } as const;
        },
        getEntry({ path, follow }) {
          if (obstacle && (follow || String(Buffer.from(path)) !== "/link")) throw obstacle;
          if (follow || String(Buffer.from(path)) !== "/link") {
            throw new DomainError("NOT_FOUND", "There is no such file.");
          }
          return { entry: link };
        },
        listEntries: () => ({ entries: [link] }),
        async writeFile(parts) {
          let path = "";
          for await (const { part } of parts) {
            if (part.case === "start") path = String(Buffer.from(part.value.path));
            if (part.case === "data") written.push(`${path} ${Buffer.from(part.value)}`);
            if (part.case === "commit") committed.push(path);
          }
          return {};
        },
      },
    },
  });
});
afterAll(() => platform?.close());

const key = (token: string) => ({ "x-api-key": token });
const get = (url: string, headers: Record<string, string> = key(apiToken)) => platform.app.inject({ url, headers });
const list = (headers: Record<string, string>) =>
  platform.app.inject({
    method: "POST",
    url: "/e2b/envd/process.Process/List",
    headers: { "content-type": "application/json", ...headers },
    payload: "{}",
  });

test("pages of any origin use envd, where no cookie counts, and a download has its file's name", async () => {
  const origin = "https://page.test";
  const preflight = (url: string, host = "api.test") =>
    platform.app.inject({
      method: "OPTIONS",
      url,
      headers: {
        host,
        origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,connect-protocol-version,x-access-token",
      },
    });
  for (const [url, host] of [
    ["/e2b/envd/files?path=/a", undefined],
    ["/process.Process/Start", `49983-${name}.e2b.test:8443`],
  ] as const) {
    const { statusCode, headers } = await preflight(url, host);
    expect(statusCode).toBe(204);
    expect(headers).toMatchObject({
      "access-control-allow-origin": "*",
      "access-control-allow-methods": expect.stringContaining("POST"),
      "access-control-allow-headers": "authorization,connect-protocol-version,x-access-token",
    });
    expect(headers).not.toHaveProperty("access-control-allow-credentials");
  }
  expect((await preflight("/e2b/sandboxes")).statusCode).toBe(404);

  const from = { origin, "e2b-sandbox-id": name };
  const url = `/e2b/envd/files?path=${encodeURIComponent("/x/ä b.txt")}`;
  const { statusCode, headers } = await get(url, { ...from, "x-access-token": accessToken });
  expect(statusCode).toBe(200);
  expect(headers).toMatchObject({
    "access-control-allow-origin": "*",
    "access-control-expose-headers": "*",
    "content-disposition": `attachment; filename="_ b.txt"; filename*=UTF-8''%C3%A4%20b.txt`,
  });
  expect(headers).not.toHaveProperty("access-control-allow-credentials");
  const refused = await get(url, { ...from, cookie: `sandgate_session=${apiToken}; access_token=${accessToken}` });
  expect(refused.statusCode).toBe(401);
  expect(refused.headers).toMatchObject({ "access-control-allow-origin": "*" });
});

test("a sandbox is shown as E2B shows it, under its own name", async () => {
  const shown = await get(`/e2b/sandboxes/${name}`);
  expect(shown.statusCode).toBe(200);
  expect(shown.json()).toMatchObject({
    sandboxID: name,
    templateID: "image-1",
    alias: "base",
    cpuCount: 2,
    memoryMB: 512,
    diskSizeMB: 1024,
    state: "running",
    metadata: { purpose: "tests" },
    // What SDKs up to 2.5 take from here.
    envdAccessToken: accessToken,
    domain: "e2b.test:8443",
  });
  expect(shown.json()).not.toHaveProperty("trafficAccessToken");
  expect((await get("/e2b/v2/sandboxes")).json()).toHaveLength(1);
});

test("what is away for a while is 503, and worth another try", async () => {
  isAway = true;
  const answer = await get("/e2b/v2/sandboxes");
  isAway = false;
  expect(answer.statusCode).toBe(503);
  expect(answer.headers["should-retry"]).toBe("true");
  expect(answer.json()).toEqual({ code: 503, message: expect.any(String) });
});

test("an ended sandbox, one by its id or name of ours, and an invented one are answered the same", async () => {
  const invented = (await get("/e2b/sandboxes/invented")).json();
  expect(invented).toMatchObject({ code: 404 });
  for (const each of [sandboxId, "box", "a".repeat(50)]) {
    expect((await get(`/e2b/sandboxes/${each}`)).json()).toEqual(invented);
  }
  // SDKs up to 2.5 resume what they can't connect to.
  const resume = async (each: string) => {
    const url = `/e2b/sandboxes/${each}/resume`;
    return (
      await platform.app.inject({ method: "POST", url, headers: key(apiToken), payload: { timeout: 300 } })
    ).json();
  };
  expect(await resume(name)).toMatchObject({ code: 501 });
  expect(await resume("invented")).toEqual(invented);
  isOver = true;
  expect((await get(`/e2b/sandboxes/${name}`)).json()).toEqual(invented);
  expect(await resume(name)).toEqual(invented);
  isOver = false;
});

test("an image that lives for less than the usual time-out limits it, but not a time-out that was asked for", async () => {
  const create = (payload: object, headers: Record<string, string> = {}) =>
    platform.app.inject({
      method: "POST",
      url: "/e2b/sandboxes",
      headers: { ...key(apiToken), ...headers },
      payload: { templateID: "base", ...payload },
    });
  expect((await create({})).statusCode).toBe(201);
  expect([...ordered]).toEqual([["none", undefined]]);
  // Nor is the same request another one when it comes again.
  for (let time = 0; time < 2; time++) {
    expect((await create({}, { "idempotency-key": "one" })).json()).toMatchObject({ sandboxID: name });
  }
  expect((await create({ timeout: 100 }, { "idempotency-key": "two" })).statusCode).toBe(201);
  expect(ordered.get("two")).toBe(100);
  const refused = await create({ timeout: 300 });
  expect(refused.json()).toEqual({
    code: 400,
    message: "body.timeout must be 120 or less, the time to live of the image.",
  });
  const large = await create({ envVars: { LARGE: "x" } });
  expect(large.json()).toMatchObject({ code: 400, message: expect.stringContaining("body.envVars must have") });
});

test("only an API token is a key, as it is or in the form of E2B's", async () => {
  expect((await get("/e2b/sandboxes", key(`e2b_${Buffer.from(apiToken).toString("hex")}`))).statusCode).toBe(200);
  const session = await platform.signAccessToken();
  const bad: Record<string, string>[] = [
    {},
    key("sgt_wrong"),
    key(session),
    key(""),
    { authorization: `Bearer ${session}` },
  ];
  for (const headers of bad) {
    const answer = await get("/e2b/sandboxes", headers);
    expect(answer.statusCode).toBe(401);
    expect(answer.json()).toMatchObject({ code: 401, message: expect.any(String) });
  }
});

test("envd takes the access token that was made for the sandbox, and nothing else", async () => {
  const place = { "e2b-sandbox-id": name };
  expect((await list({ ...place, "x-access-token": accessToken })).statusCode).toBe(200);
  for (const token of [apiToken, accessToken.toUpperCase(), name]) {
    const refused = await list({ ...place, "x-access-token": token });
    expect(refused.statusCode).toBe(401);
    expect(refused.json()).toMatchObject({ code: "unauthenticated" });
  }
  expect((await list(place)).statusCode).toBe(401);
  const gone = await list({ "e2b-sandbox-id": "invented", "x-access-token": accessToken });
  expect(gone.statusCode).toBe(502);
  expect(gone.json()).toEqual({ sandboxId: "invented", message: "The sandbox was not found", code: 502 });
  expect((await get("/workspaces", { authorization: `Bearer ${accessToken}` })).statusCode).toBe(401);
});

test("a signature is by one of the 200 newest tokens that may use the sandbox, and by any key that still holds", async () => {
  const read = async (by: string) => {
    const signature = hash("sha256", `/a:read::${by}`, "base64").replace("=", "");
    const url = `/e2b/envd/files?path=/a&signature=${encodeURIComponent(`v1_${signature}`)}`;
    return (await platform.app.inject({ url, headers: { "e2b-sandbox-id": name } })).statusCode;
  };
  const others = Array.from({ length: 200 }, (_, i) => `01900000-0000-7000-8000-${String(i).padStart(12, "0")}`);
  const older = createNames({ sandbox: { deriveKeys: async () => ({ keys: keys.slice(1) }) } as never });
  usable = [...others, tokenId];
  expect(await read(accessToken)).toBe(401);
  usable = [...others.slice(1), tokenId];
  await expect.poll(() => read(accessToken)).toBe(200);
  expect(await read(await older.toAccessToken(sandboxId, tokenId))).toBe(200);
  expect(await read(await older.toAccessToken(tokenId, tokenId))).toBe(401);
  expect(asked[0]).toEqual({ userIds: [userId, "ben"], workspaceId, permission: Permission.USE });
});

test("only of a sandbox that has ended is it said that it is gone", async () => {
  const headers = { "e2b-sandbox-id": name, "x-access-token": accessToken };
  const answers = async (error: DomainError) => {
    obstacle = error;
    const read = await get("/e2b/envd/files?path=/a", headers);
    const stat = await platform.app.inject({
      method: "POST",
      url: "/e2b/envd/filesystem.Filesystem/Stat",
      headers: { ...headers, "content-type": "application/json" },
      payload: { path: "/a" },
    });
    obstacle = undefined;
    return [read.statusCode, read.json().message, stat.json().code];
  };
  const hint = "Wait.";
  const full = new DomainError("CONFLICT", "32 files are on their way already.", { hint, errno: "EMFILE" });
  expect(await answers(full)).toEqual([429, "32 files are on their way already. Wait.", "resource_exhausted"]);
  const lacking = new DomainError("CONFLICT", "This sandbox lacks the helper.", { hint, errno: "ENOSYS" });
  expect(await answers(lacking)).toEqual([409, "This sandbox lacks the helper. Wait.", "failed_precondition"]);
  const ended = new DomainError("CONFLICT", "The sandbox was stopped (ttl_expired).");
  expect(await answers(ended)).toEqual([502, "The sandbox was not found", 502]);
});

test("a link that can't be followed is shown without a type, and other errors are told", async () => {
  const call = async (method: string, path: string) => {
    const answer = await platform.app.inject({
      method: "POST",
      url: `/e2b/envd/filesystem.Filesystem/${method}`,
      headers: { "content-type": "application/json", "e2b-sandbox-id": name, "x-access-token": accessToken },
      payload: { path },
    });
    return answer.json();
  };
  const shown = { name: "link", path: "/link", symlinkTarget: "/elsewhere" };
  for (const errno of ["EACCES", "ELOOP", "ENAMETOOLONG", "ENOTDIR"]) {
    obstacle = new DomainError("CONFLICT", `The sandbox refused it: ${errno}.`, { errno });
    const { entry } = await call("Stat", "/link");
    expect(entry).toMatchObject(shown);
    expect(entry).not.toHaveProperty("type");
    expect(await call("ListDir", "/")).toMatchObject({ entries: [shown] });
  }
  obstacle = new DomainError("CONFLICT", "32 files are on their way already.", { errno: "EMFILE" });
  expect(await call("ListDir", "/")).toMatchObject({ code: "resource_exhausted" });
  obstacle = undefined;
});

test("output of a process that was lost ends its stream as data that was lost", async () => {
  const connect = async () => {
    const message = new TextEncoder().encode(JSON.stringify({ process: { pid: 7 } }));
    const { rawPayload } = await platform.app.inject({
      method: "POST",
      url: "/e2b/envd/process.Process/Connect",
      headers: { "content-type": "application/connect+json", "e2b-sandbox-id": name, "x-access-token": accessToken },
      payload: Buffer.from(encodeEnvelope(0, message)),
    });
    return rawPayload.toString();
  };
  // What is gone before the first of it was told is none that was asked for.
  output = [5, "first", "second"];
  expect(await connect()).toContain('"end"');
  output = [5, "first", 3, "second"];
  const told = await connect();
  expect(told).toContain(Buffer.from("first").toString("base64"));
  expect(told).not.toContain(Buffer.from("second").toString("base64"));
  expect(told).not.toContain('"end"');
  expect(told).toContain('"code":"data_loss"');
});

const sendInput = (text: string) =>
  platform.app.inject({
    method: "POST",
    url: "/e2b/envd/process.Process/SendInput",
    headers: { "content-type": "application/json", "e2b-sandbox-id": name, "x-access-token": accessToken },
    payload: { process: { pid: 7 }, input: { stdin: Buffer.from(text).toString("base64") } },
  });

test("inputs that are sent at the same time all arrive, each in one piece", async () => {
  const lines = Array.from({ length: 5 }, (_, i) => `line ${i}\n`);
  const answers = await Promise.all(lines.map(sendInput));
  expect(answers.map(({ statusCode }) => statusCode)).toEqual(lines.map(() => 200));
  expect(input.split("\n").sort()).toEqual(["", ...lines.map((line) => line.trim())]);
});

test("all of an input arrives once while another replica writes to the same full pipe", async () => {
  [input, others] = ["", "-"];
  expect((await sendInput("a line\n")).statusCode).toBe(200);
  others = "";
  expect(input.replaceAll("-", "")).toBe("a line\n");
});

test("a form that breaks off within a file is refused, and what came of the file is not kept", async () => {
  const part = (name: string) =>
    `--b\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n\r\nsome of ${name}`;
  const send = (payload: string, username: string) =>
    platform.app.inject({
      method: "POST",
      url: `/e2b/envd/files?username=${username}`,
      headers: {
        "e2b-sandbox-id": name,
        "x-access-token": accessToken,
        "content-type": "multipart/form-data; boundary=b",
      },
      payload,
    });
  // It is yet to be found out what folder the first user's files are in when the form breaks off.
  for (const [username, payload] of [
    ["ada", part("/cut")],
    ["ada", part("/cut")],
    ["ada", `${part("/first")}\r\n${part("/cut")}`],
    ["ben", `${part("/first")}\r\n${part("/cut")}`],
  ] as const) {
    const refused = await send(payload, username);
    expect(refused.statusCode).toBe(400);
    expect(refused.json()).toMatchObject({ message: expect.stringContaining("complete multipart/form-data body") });
  }
  expect((await send(`${part("/whole")}\r\n--b--\r\n`, "ada")).statusCode).toBe(200);
  expect(written).toContain("/whole some of /whole");
  expect(committed).toContain("/whole");
  expect(committed).not.toContain("/cut");
});

test("a token without the permission is refused, before any service is asked, also what would open ports", async () => {
  platform.state.tokenPermissions = [Permission.READ];
  await expect
    .poll(async () => (await list({ "e2b-sandbox-id": name, "x-access-token": accessToken })).statusCode)
    .toBe(403);
  const create = {
    method: "POST",
    url: "/e2b/sandboxes",
    headers: key(apiToken),
    payload: { templateID: "base" },
  } as const;
  // What a token may do is remembered for a second.
  await expect.poll(async () => (await platform.app.inject(create)).statusCode, { timeout: 10_000 }).toBe(403);
  expect((await get("/e2b/v2/sandboxes")).statusCode).toBe(403);
  expect((await get(`/e2b/sandboxes/${name}`)).statusCode).toBe(200);
  platform.state.tokenPermissions = [Permission.READ, Permission.PROVISION];
  const connect = () =>
    platform.app.inject({
      method: "POST",
      url: `/e2b/sandboxes/${name}/connect`,
      headers: key(apiToken),
      payload: {},
    });
  await expect
    .poll(async () => (await connect()).json())
    .toMatchObject({ message: expect.stringContaining("the use") });
  platform.state.tokenPermissions = [];
  await expect.poll(async () => (await get("/e2b/v2/sandboxes")).statusCode).toBe(200);
});

test("where ports ask for their token, the names of sandboxes are for all who may read", async () => {
  const closed = await openTestPlatform({
    env: { SANDGATE_E2B_DOMAIN: "e2b.test", SANDGATE_E2B_PUBLIC: "off" },
    handlers: {
      sandbox: {
        deriveKeys: () => ({ keys }),
        getInstallation: () => ({ installationId: "i", cpus: 2, diskMb: 1024 }),
        listSandboxes: () => ({ sandboxes: [ready] }),
      },
    },
  });
  closed.state.tokenPermissions = [Permission.READ];
  const listed = await closed.app.inject({ url: "/e2b/v2/sandboxes", headers: key(boundApiToken) });
  await closed.close();
  expect(listed.json()).toMatchObject([{ sandboxID: name }]);
});

test("the access token ends with the API token", async () => {
  isRevoked = true;
  const headers = { "e2b-sandbox-id": name, "x-access-token": accessToken };
  await expect.poll(async () => (await list(headers)).statusCode).toBe(401);
  isRevoked = false;
});

test("hosts below the domain lead to their own routes, and to no other", async () => {
  const of = (host: string, url: string, headers = key(apiToken)) => get(url, { ...headers, host });
  expect((await of("api.e2b.test", "/v2/sandboxes")).statusCode).toBe(200);
  expect((await of("api.e2b.test:8443", "/e2b/v2/sandboxes")).statusCode).toBe(200);
  expect((await of("api.e2b.test", "/workspaces")).statusCode).toBe(404);
  expect((await of(`3000-${"a".repeat(50)}.e2b.test`, "/workspaces")).statusCode).toBe(502);
  expect((await of("api.e2b.test.evil.test", "/v2/sandboxes")).statusCode).toBe(404);
  expect((await get("/e2b/port/x")).statusCode).toBe(502);
});

test("without a domain there is nothing of it", async () => {
  const plain = await openTestPlatform();
  try {
    for (const url of ["/e2b/sandboxes", "/e2b/envd/health", "/e2b"]) {
      const { statusCode, headers } = await plain.app.inject({ url, headers: key(apiToken) });
      expect(statusCode).toBe(404);
      expect(headers).not.toHaveProperty("access-control-allow-origin");
    }
  } finally {
    await plain.close();
  }
});

test("without its folder, and the lines that name it, the facade's sources are whole", async () => {
  const root = join(import.meta.dirname, "../../..");
  const copy = join(root, "node_modules/.cache/facade-alone");
  await rm(copy, { recursive: true, force: true });
  try {
    await cp(join(root, "facade"), copy, {
      recursive: true,
      filter: (path) => !/\/facade\/src\/e2b(?:\/|$)/.test(path),
    });
    for await (const file of glob("src/**/*.ts", { cwd: copy })) {
      const text = await readFile(join(copy, file), "utf8");
      if (!/e2b/i.test(text)) continue;
      expect(["src/server.ts", "src/settings.ts"]).toContain(file);
      const lines = text.split("\n").map((line) => line.replace(/e2bPathOf\(raw, settings\) \?\? /, ""));
      await writeFile(join(copy, file), lines.filter((line) => !/e2b/i.test(line)).join("\n"));
    }
    const config = { extends: join(root, "tsconfig.json"), include: [join(copy, "src/main.ts")], exclude: [] };
    await writeFile(join(copy, "tsconfig.json"), JSON.stringify(config));
    await promisify(execFile)(join(root, "node_modules/.bin/tsc"), ["--noEmit", "-p", copy], { cwd: root });
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
});
