// The command line in front of an API whose answers the test gives, such as those of a sandbox that lies.
import { execFile } from "node:child_process";
import { once } from "node:events";
import { lstat, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder, type TempFolder } from "@sandgate/test-support/temp-folder";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { withoutSettings } from "../platform/local.ts";
import { type Ended, program, sandgate, startInTerminal, startSandgate } from "./command-line.ts";

const execute = promisify(execFile);

interface Asked {
  method: string | undefined;
  /** Of what is in the sandbox. */
  path: string;
  body: string;
}

let server: Server;
let folder: TempFolder;
let asked: Asked[];
/** The sandbox's answers, by method and the end of the address. A `status` is that of the answer. */
let answers: Record<string, unknown>;

beforeEach(async () => {
  folder = await createTempFolder();
  asked = [];
  answers = {};
  server = createServer(async (request: IncomingMessage, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const { pathname, searchParams } = new URL(request.url ?? "", "http://api");
    asked.push({ method: request.method, path: searchParams.get("path") ?? "", body });
    const given = answers[`${request.method} ${pathname.replace(/^\/sandboxes\/box\/?/, "")}`];
    const answer =
      given ?? (request.method === "GET" && pathname === "/sandboxes/box" ? { id: "box", name: "box" } : {});
    const { status = 200 } = answer as { status?: number };
    if (Buffer.isBuffer(answer)) response.end(answer);
    else response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(answer));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await folder.remove();
});

const environment = () => ({
  ...withoutSettings(process.env),
  SANDGATE_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  SANDGATE_TOKEN: "t",
  SANDGATE_WORKSPACE: "01900000-0000-7000-8000-00000000000a",
  SANDGATE_CONFIG: join(folder.path, "login.json"),
});
const run = (...args: string[]): Promise<Ended> => sandgate(args, { env: environment() });
/** The answer to a command that prints a text, and ends. */
const printed = (text = "") => {
  const event = (name: string, data: object) => `id: 0\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
  const output = event("output", { stream: "stdout", data: Buffer.from(text).toString("base64") });
  const [start, exit] = ["running", "exited"].map((state) => ({ id: "p", state, exit_code: 0 }));
  return Buffer.from(`${event("start", { ...start })}${output}${event("exit", { ...exit })}`);
};
const entryOf = (path: string, type = "file") => ({ path, type, mode: "0644", name: "any", size: 4 });
const written = () => asked.filter(({ method }) => method === "PUT").map(({ path, body }) => [path, body]);

describe("what a sandbox says is in a folder lands in the local one or nowhere", () => {
  const copy = async (stated: string, ...entries: object[]) => {
    answers = {
      "GET files/entry": entryOf(stated, "directory"),
      "GET files/entries": { entries, next_cursor: null },
      "GET files": Buffer.from("evil"),
    };
    await mkdir(join(folder.path, "home/local"), { recursive: true });
    return run("cp", "-r", "box:/data", join(folder.path, "home/local"));
  };

  test.each(["/escaped.txt", "/data/../escaped.txt", "/../.ssh/authorized_keys"])("%s", async (path) => {
    const refused = { code: 1, stderr: expect.stringContaining("outside") };
    expect(await copy("/data", entryOf(path))).toMatchObject(refused);
    expect(await copy("/data", entryOf(path, "directory"))).toMatchObject(refused);
    expect(await readdir(folder.path)).toEqual(["home"]);
    expect(await readdir(join(folder.path, "home"))).toEqual(["local"]);
    expect(await readdir(join(folder.path, "home/local"))).toEqual(["data"]);
  });

  test("also where the folder itself has a false name", async () => {
    const copied = await copy("/data/x/..", entryOf("/data/evil.txt"));
    expect(copied).toMatchObject({ code: 1, stderr: expect.stringContaining("outside") });
    expect(await readdir(join(folder.path, "home"))).toEqual(["local"]);
  });

  test("also where a link is in its place", async () => {
    await mkdir(join(folder.path, "home/local/data"), { recursive: true });
    await writeFile(join(folder.path, "outside"), "safe");
    await symlink("../../../outside", join(folder.path, "home/local/data/a"));
    expect(await copy("/data", entryOf("/data/a"))).toMatchObject({ code: 0 });
    expect(await readFile(join(folder.path, "home/local/data/a"), "utf8")).toBe("evil");
    expect(await readFile(join(folder.path, "outside"), "utf8")).toBe("safe");
  });

  test("and is shown without what would move the cursor", async () => {
    const copied = await copy("/data", entryOf("/data/\u001b]0;evil\u0007\r\u009b2J", "other"), entryOf("/data/a"));
    expect(copied).toMatchObject({ code: 0, stderr: "skipped /data/ ]0;evil   2J, which is no file (other)\n" });
    expect(await readFile(join(folder.path, "home/local/data/a"), "utf8")).toBe("evil");
  });
});

test("a file is copied into a pipe or a device, which stays what it is", async () => {
  answers = { "GET files/entry": entryOf("/a"), "GET files": Buffer.from("content") };
  const pipe = join(folder.path, "pipe");
  await execute("mkfifo", ["-m", "600", pipe]);
  const [content, copied] = await Promise.all([readFile(pipe, "utf8"), run("cp", "box:/a", pipe)]);
  expect([content, copied]).toMatchObject(["content", { code: 0, stderr: "" }]);
  const { mode } = await lstat(pipe);
  expect(mode & 0o777).toBe(0o600);
});

describe("what asks", () => {
  const asking = [
    ["login", "Email: "],
    ["registries add ghcr ghcr.io --username ada", "Password: "],
  ] as const;

  test.each(asking)("ends with the first Ctrl-C, and says so when nothing is typed: %s", async (command, question) => {
    for (const [key, expected] of [
      ["\u0003", { code: 130 }],
      ["\u0004", { code: 1, stdout: expect.stringContaining("error: Nothing was typed.") }],
    ] as const) {
      const running = startInTerminal(`${program} ${command}`, environment());
      await running.says(question);
      running.type(key);
      expect(await running.ended).toMatchObject(expected);
    }
    expect(asked).toEqual([]);
  });

  test.each(asking)("ends with the first signal while it reads a pipe: %s", async (command) => {
    const running = startSandgate(command.split(" "), { ...environment(), NODE_DEBUG: "stream" });
    // It reads, which Node.js tells.
    await running.says(/STREAM .*read/);
    running.kill("SIGTERM");
    expect((await running.ended).code).toBe(143);
    expect(asked).toEqual([]);
  });
});

test.each(["./src", "src/", "src/.", "other/..//src", "../work/src"])(
  "a folder's files keep their names, whatever way leads to it: %s",
  async (from) => {
    const work = join(folder.path, "work");
    await mkdir(join(work, "src/sub"), { recursive: true });
    await mkdir(join(work, "other"));
    await writeFile(join(work, "src/a.txt"), "a");
    await writeFile(join(work, "src/sub/c\\d.txt"), "c");
    const before = process.cwd();
    process.chdir(work);
    try {
      expect(await run("cp", "-r", from, "box:/app")).toMatchObject({ code: 0, stderr: "" });
    } finally {
      process.chdir(before);
    }
    expect(written().toSorted()).toEqual([
      ["/app/a.txt", "a"],
      ["/app/sub/c\\d.txt", "c"],
    ]);
  },
);

describe("--help", () => {
  test.each([
    [["logout", "-h"]],
    [["stop", "box", "-h"]],
    [["stop", "box", "--help"]],
    [["exec", "-it", "--help", "box", "ls"]],
  ])("shows how a command is used, and does nothing: %j", async (args) => {
    const { code, stdout } = await run(...args);
    expect({ code, stdout }).toMatchObject({ code: 0, stdout: expect.stringContaining(`usage: sandgate ${args[0]}`) });
    expect(asked).toEqual([]);
  });

  test.each([
    [["box", "ls", "--help"], { command: ["ls", "--help"] }],
    [["-unode", "box", "ls", "-la"], { command: ["ls", "-la"], user: "node" }],
    [["-iunode", "-eA=b", "box", "ls", "-h"], { command: ["ls", "-h"], user: "node", env: { A: "b" } }],
    [["-w", "/tmp", "box", "--", "ls", "-h"], { command: ["ls", "-h"], cwd: "/tmp" }],
    [["--user", "node", "--env=A=b", "box", "-l"], { command: ["-l"], user: "node", env: { A: "b" } }],
  ])("of a command in a sandbox is its own, with all that follows the sandbox: exec %j", async (args, expected) => {
    answers = {
      "POST exec": printed(),
      "POST processes": { id: "p", state: "running" },
      "GET processes/p/output": printed(),
    };
    expect(await run("exec", ...args)).toEqual({ code: 0, stdout: "", stderr: "" });
    const bodies = asked.flatMap(({ method, body }) => (method === "POST" && body !== "" ? [JSON.parse(body)] : []));
    expect(bodies[0]).toMatchObject(expected);
  });
});

describe("logout", () => {
  const session = { accessToken: "a", refreshToken: "r", expiresAt: "2126-01-01T00:00:00Z" };
  const logOut = async (status: number, code: string, url = environment().SANDGATE_URL) => {
    await writeFile(join(folder.path, "login.json"), JSON.stringify({ url, token: "t", session }));
    const error = (code: string) => ({ error: { code, message: "refused", retryable: false } });
    answers = {
      "DELETE /api-tokens/t": { status, ...error(code) },
      "POST /auth/refresh": { status: 401, ...error("invalid_token") },
    };
    const ended = await sandgate(["logout"], { env: { ...environment(), SANDGATE_URL: url, SANDGATE_TOKEN: "" } });
    return { ...ended, isSignedIn: (await readdir(folder.path)).includes("login.json") };
  };

  test("keeps the login where the token may still be valid", async () => {
    const kept = { code: 1, stderr: "error: refused\n", isSignedIn: true };
    expect(await logOut(500, "internal_error")).toMatchObject(kept);
    expect(await logOut(0, "", "http://127.0.0.1:1")).toMatchObject({ code: 1, isSignedIn: true });
  });

  test("removes the login where the session has ended, or the token was revoked before", async () => {
    const ended = { code: 0, stderr: expect.stringContaining("The session has ended"), isSignedIn: false };
    expect(await logOut(401, "invalid_token")).toMatchObject(ended);
    expect(await logOut(403, "forbidden")).toMatchObject(ended);
    const revoked = { code: 0, stderr: expect.stringMatching(/^Signed out of .*\n$/), isSignedIn: false };
    expect(await logOut(404, "api_key_not_found")).toMatchObject(revoked);
  });
});

describe("workspaces use", () => {
  const login = (url: string | undefined) =>
    writeFile(join(folder.path, "login.json"), JSON.stringify({ url, token: "t", workspace: "w1" }));
  const stored = async () => JSON.parse(await readFile(join(folder.path, "login.json"), "utf8")).workspace;
  beforeEach(() => {
    answers = { "GET /workspaces": { workspaces: [{ id: "w2", name: "mine" }], next_cursor: null } };
  });

  test("stores the workspace with the login, and says what goes first", async () => {
    await login(environment().SANDGATE_URL);
    const { code, stderr } = await run("workspaces", "use", "mine");
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining("SANDGATE_WORKSPACE is set") });
    expect(await stored()).toBe("w2");
  });

  test("stores none of a platform that the login is not for", async () => {
    await login("http://other.example.com");
    const refused = { code: 1, stderr: expect.stringMatching(/not signed in to http:.*\n.*SANDGATE_WORKSPACE/) };
    expect(await run("workspaces", "use", "mine")).toMatchObject(refused);
    expect(await stored()).toBe("w1");
    await rm(join(folder.path, "login.json"));
    expect(await run("workspaces", "use", "mine")).toMatchObject(refused);
  });
});

describe("an agent", () => {
  let client: Client;
  beforeEach(async () => {
    client = new Client({ name: "test", version: "1" });
    const env = environment() as Record<string, string>;
    await client.connect(new StdioClientTransport({ command: program, args: ["mcp"], env }));
  });
  afterEach(() => client.close());

  const call = async (name: string, args: object) => {
    const { content, isError = false } = await client.callTool({ name, arguments: { sandbox: "box", ...args } });
    return { text: (content as { text: string }[])[0]?.text, isError };
  };

  test("that asks for more output never runs a command again", async () => {
    answers = { "POST exec": printed("12345") };
    const gone = { isError: true, text: expect.stringContaining("not kept") };
    expect(await call("run_command", { command: "c", offset: 3 })).toEqual(gone);
    await call("run_command", { command: "c", cwd: "/tmp" });
    expect(await call("run_command", { command: "c", cwd: "/tmp", offset: 3 })).toMatchObject({
      text: "exit code 0\n45",
    });
    expect(await call("run_command", { command: "c", offset: 3 })).toEqual(gone);
    expect(asked.filter(({ method }) => method === "POST")).toHaveLength(1);
  });

  test("gets whole characters where a text is cut", async () => {
    answers = {
      "POST exec": printed("a😀b"),
      "GET files": Buffer.from("a😀b"),
      "GET files/entry": { ...entryOf("/a"), size: 6 },
    };
    await call("run_command", { command: "c" });
    const parts = async (name: string, args: object) => {
      const starts = [0, 1, 2, 3].map((offset) => call(name, { ...args, offset, limit: offset === 0 ? 2 : 1 }));
      return (await Promise.all(starts)).map(({ text }) => text?.replace(/^exit code 0\n/, ""));
    };
    const file = "[more of a file of 6 bytes; go on with offset 3]";
    expect(await parts("read_file", { path: "/a" })).toEqual([`a😀\n${file}`, `😀\n${file}`, "b", "b"]);
    const output = "[1 more characters of 4; go on with offset 3]";
    expect(await parts("run_command", { command: "c" })).toEqual([`a😀\n${output}`, `😀\n${output}`, "b", "b"]);
  });
});

describe.runIf(await requireServer("bash", () => execute("bash", ["-c", "true"])))("completion in bash", () => {
  /** What it offers where others have made images of these names. */
  async function complete(word: string, ...images: string[]): Promise<string[]> {
    const { stdout: script } = await run("completion", "bash");
    const asked = `${script}
sandgate() { printf '%s\\n' "\${images[@]}"; }
COMP_WORDS=(sandgate run "$1") COMP_CWORD=2 images=("\${@:2}")
_sandgate
printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { stdout } = await execute("bash", ["--norc", "-c", asked, "bash", word, ...images], {
      cwd: folder.path,
    });
    return stdout.trim().split("\n");
  }

  test("offers what begins with the word", async () => {
    expect(await complete("p", "default", "python", "php")).toEqual(["python", "php"]);
    expect(await complete("", "default", "python")).toEqual(["default", "python"]);
    expect(await complete("q", "default")).toEqual([""]);
  });

  test("runs nothing of a name, and quotes it", async () => {
    const names = ["$(touch ran)", "`touch ran`", "a b;touch ran", "*"];
    const offered = await complete("", ...names);
    const { stdout } = await execute("bash", ["-c", `printf '%s\\n' ${offered.join(" ")}`], { cwd: folder.path });
    expect(stdout.trim().split("\n")).toEqual(names);
    expect(await readdir(folder.path)).toEqual([]);
  });
});
