// The command line as people have it before them: prompts, Ctrl-C and completion in real terminals and shells; and what
// of it goes into pipes.
import { execFile } from "node:child_process";
import { chmod, mkdir, readFile, writeFile } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";
import { type Sandbox, Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder, type TempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { Secret, TOTP } from "otpauth";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createPreviewClient } from "../conformance/preview-client.ts";
import { type UsedPlatform, usePlatform } from "../platform/given.ts";
import { withoutSettings } from "../platform/local.ts";
import { program, sandgate, startInTerminal, startSandgate } from "./command-line.ts";

const execute = promisify(execFile);
const escapeCharacter = "\u001b";
const ctrlC = "\u0003";

const has = (shell: string) => requireServer(shell, () => execute(shell, ["-c", "true"]));
const shells = { bash: await has("bash"), zsh: await has("zsh"), fish: await has("fish") };

describe.runIf(await requireServer("docker", probeEngine))("the command line in a terminal", () => {
  let platform: UsedPlatform;
  let folder: TempFolder;
  let env: NodeJS.ProcessEnv;
  let client: Sandgate;
  let box: Sandbox;
  const run = (...args: string[]) => sandgate(args, { env });
  const ok = async (...args: string[]) => {
    const { code, stdout, stderr } = await run(...args);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    return stdout;
  };

  beforeAll(async () => {
    platform = await usePlatform();
    folder = await createTempFolder();
    client = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const { token } = await client.apiTokens.create({ description: "terminal" });
    env = {
      ...withoutSettings(process.env),
      PATH: [dirname(program), process.env.PATH].join(delimiter),
      TERM: "xterm",
      SANDGATE_URL: platform.url,
      SANDGATE_TOKEN: token,
      SANDGATE_CONFIG: join(folder.path, "login.json"),
    };
    box = await client.sandboxes.create("default", { name: "box" });
  });
  afterAll(async () => {
    await platform?.stop();
    await folder?.remove();
  });

  const expectNothingRuns = () => until(async () => expect(await box.commands.list({ state: "running" })).toEqual([]));

  test("asks for the code of a second factor, and says so when it is wrong", async () => {
    const { password } = platform.admin;
    const { secret } = await client.secondFactor.create({ password });
    const codeAt = (timestamp: number) => TOTP.generate({ secret: Secret.fromBase32(secret), timestamp });
    await client.secondFactor.confirm({ otp: codeAt(Date.now()) });
    const signIn = async (code: string) => {
      const login = startInTerminal("sandgate login", { ...env, SANDGATE_TOKEN: "" });
      await login.says("Email: ");
      login.type(`${platform.admin.username}\n`);
      await login.says("Password: ");
      login.type(`${password}\n`);
      await login.says("Authentication code: ");
      login.type(`${code}\n`);
      return login.ended;
    };
    const refused = await signIn("000000");
    expect(refused.code).toBe(1);
    expect(refused.stdout).toMatch(/error: .+\r\n/);
    // Each code works once, and the next one a little ahead of its time.
    const signedIn = await signIn(codeAt(Date.now() + 30_000));
    expect(signedIn).toMatchObject({ code: 0, stdout: expect.stringContaining("Signed in to") });
    expect(signedIn.stdout).not.toContain(password);
    const whoami = await sandgate(["whoami", "-o", "name"], { env: { ...env, SANDGATE_TOKEN: "" } });
    expect(whoami.stdout).toBe(`${platform.admin.username}\n`);
  });

  describe("completes commands and names of sandboxes and images", () => {
    /** Types a line and Tab in front of a shell, which shows what came of it. */
    async function complete(shell: string, setUp: string, line: string, completed: string): Promise<void> {
      const terminal = startInTerminal(shell, env);
      terminal.type(`${setUp}; PS1='ready> '; echo set-$((20 + 22))\n`);
      await terminal.says("set-42");
      terminal.type(`${line}\t`);
      await terminal.says(completed);
      // Ctrl-U takes the line back.
      terminal.type("\u0015exit\n");
      await terminal.ended;
    }
    const lines = [
      ["sandgate sto", "sandgate stop"],
      ["sandgate exec bo", "sandgate exec box"],
      ["sandgate run defa", "sandgate run default"],
    ] as const;

    test.runIf(shells.bash).each(lines)("in bash: %s", async (line, completed) => {
      await complete("bash --norc -i", 'eval "$(sandgate completion bash)"', line, completed);
    });

    test.runIf(shells.zsh).each(lines)("in zsh: %s", async (line, completed) => {
      const setUp = 'autoload -U compinit; compinit -u -D; eval "$(sandgate completion zsh)"';
      await complete("zsh -f -i", setUp, line, completed);
    });

    test.runIf(shells.fish).each(lines)("in fish: %s", async (line, completed) => {
      const script = `sandgate completion fish | source; complete --do-complete '${line}'`;
      const home = { ...env, HOME: folder.path };
      const { stdout } = await execute("fish", ["--no-config", "-c", script], { env: home });
      const words = stdout.split("\n").map((word) => word.split("\t")[0]);
      expect(words).toContain(completed.split(" ").at(-1));
    });
  });

  test("Ctrl-C ends a command inside with exit code 130, and a sandbox of its own with it", async () => {
    const plain = startInTerminal("sandgate exec box sh -c 'echo begun; exec sleep 1234'", env);
    await plain.says("begun");
    plain.type(ctrlC);
    expect((await plain.ended).code).toBe(130);
    await expectNothingRuns();

    const command = "sandgate run --rm --name brief default -- sh -c 'echo begun; exec sleep 1234'";
    const own = startInTerminal(command, env);
    await own.says("begun");
    own.type(ctrlC);
    expect((await own.ended).code).toBe(130);
    expect((await client.sandboxes.get("brief")).state).toMatch(/stop/);

    // Of what only follows, nothing has to end inside.
    const following = startInTerminal("sandgate logs -f box", env);
    await following.says("serving");
    following.type(ctrlC);
    expect((await following.ended).code).toBe(130);
  });

  test("a reader that has enough and a terminal that is closed end a command inside, and a sandbox of its own", async () => {
    const piped = "set -o pipefail; sandgate run --rm --name piped default -- yes | head -n 1";
    expect(await execute("bash", ["-c", piped], { env })).toEqual({ stdout: "y\n", stderr: "" });
    expect((await client.sandboxes.get("piped")).state).toMatch(/stop/);

    for (const [i, options] of ["", "-it"].entries()) {
      const command = `${options} default -- sh -c 'echo begun; exec sleep 1234'`;
      const closed = startInTerminal(`sandgate run --rm --name closed-${i} ${command}`, env);
      await closed.says("begun");
      closed.kill("SIGKILL");
      await until(async () => expect((await client.sandboxes.get(`closed-${i}`)).state).toMatch(/stop/));
    }
  });

  test("follows a sandbox's use, in lines or as JSON", async () => {
    const watching = startSandgate(["stats", "--watch", "box"], env);
    const asJson = startSandgate(["stats", "--watch", "-o", "json", "box"], env);
    await watching.says(/(?:^box {3}\S+Z {3}.* (?:[KM]iB|B)\n){2}/m);
    await watching.says(/^box {3}\S+Z {3}\d+\.\d\d cores {3}/m);
    await asJson.says(/\n.*\n/);
    const rows = asJson.output().trim().split("\n").slice(0, 2);
    for (const row of rows) expect(JSON.parse(row)).toMatchObject({ name: "box", memoryBytes: expect.any(Number) });
    for (const each of [watching, asJson]) {
      each.kill("SIGINT");
      expect((await each.ended).code).toBe(130);
    }
  });

  test("opens a port for everybody, or in a browser", async () => {
    await box.files.write("/tmp/shown/index.html", "shown", { parents: true });
    await box.commands.start(["httpd", "-f", "-p", "127.0.0.1:3100", "-h", "/tmp/shown"]);
    await until(async () => expect((await box.ports.listening()).map(({ port }) => port)).toContain(3100));
    const open = await run("port", "box", "3100", "--public");
    expect(open).toMatchObject({ code: 0, stderr: "" });
    const client = createPreviewClient({ via: platform.url, url: open.stdout.trim() });
    expect((await client.get("/")).text).toBe("shown");

    // What a desktop opens addresses with notes what it was given.
    const desktop = join(folder.path, "desktop");
    await mkdir(desktop);
    await writeFile(join(desktop, "xdg-open"), `#!/bin/sh\necho "$1" > ${folder.path}/opened\n`);
    await chmod(join(desktop, "xdg-open"), 0o755);
    const path = { ...env, PATH: [desktop, env.PATH].join(delimiter) };
    const shown = await sandgate(["port", "box", "3100", "--open"], { env: path });
    expect(shown).toMatchObject({ code: 0, stderr: expect.stringMatching(/^Send X-Sandgate-Token: \S+\n$/) });
    const link = await until(async () => {
      const text = await readFile(join(folder.path, "opened"), "utf8");
      expect(text).toMatch(/\n$/);
      return new URL(text.trim());
    });
    expect(link.origin).toBe(new URL(shown.stdout.trim()).origin);
    const browser = createPreviewClient({ via: platform.url, url: link.href });
    const entered = await browser.get(link.pathname + link.search);
    const cookie = entered.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
    expect((await browser.get("/", { cookie })).text).toBe("shown");
  });

  test("takes how an id begins while that is unique", async () => {
    const ids = (await client.sandboxes.list()).map(({ id }) => id);
    const other = await client.sandboxes.create("default", { name: "other" });
    const common = [...ids, other.id].filter((id) => id.startsWith(box.id.slice(0, 4)));
    expect(await ok("exec", box.id, "echo", "whole")).toBe("whole\n");
    expect(await ok("exec", box.id.slice(0, 23), "echo", "part")).toBe("part\n");
    const short = await run("exec", box.id.slice(0, 4), "echo", "short");
    if (common.length === 1) expect(short).toMatchObject({ code: 0, stdout: "short\n" });
    else expect(short).toMatchObject({ code: 1, stderr: expect.stringContaining("begin with") });
    expect(await run("exec", box.id.slice(0, 3), "true")).toMatchObject({ code: 1 });
    await other.stop();
  });

  test("prints JSON for programs and names for shells, of lists and of single records", async () => {
    const lists = ["ps", "images", "registries", "workspaces", "audit"];
    for (const list of lists) {
      expect(JSON.parse(await ok(list, "-o", "json")), list).toBeInstanceOf(Array);
      expect(await ok(list, "-o", "name"), list).toMatch(/^(?:\S.*\n)*$/);
    }
    expect(await ok("ps", "--state", "ready", "-o", "name")).toBe("box\n");
    const rows = JSON.parse(await ok("ps", "--state", "ready", "-o", "json"));
    expect(rows).toMatchObject([{ name: "box", id: box.id }]);
    expect(await ok("ps", "--state", "ready", "-q")).toBe(`${box.id}\n`);
    expect(JSON.parse(await ok("extend", "box", "30m", "-o", "json"))).toMatchObject({ name: "box" });
    expect(JSON.parse(await ok("stats", "box", "-o", "json"))).toMatchObject({ name: "box" });
    expect(JSON.parse(await ok("port", "box", "3200", "-o", "json"))).toMatchObject({ port: 3200 });
    expect(JSON.parse(await ok("run", "default", "--name", "printed", "-o", "json"))).toMatchObject({ state: "ready" });
    expect(await ok("stop", "printed")).toBe("printed\n");
    expect(await run("ps", "-o", "xml")).toMatchObject({ code: 2, stdout: "" });
  });

  test("shows progress on a terminal alone, and not with NO_COLOR", async () => {
    const local = join(folder.path, "many.bin");
    await writeFile(local, Buffer.alloc(1_000_000));
    const piped = await run("run", "default", "--rm", "--", "echo", "done");
    expect(piped).toEqual({ code: 0, stdout: "done\n", stderr: "" });
    expect(await run("cp", local, "box:/tmp/many.bin")).toEqual({ code: 0, stdout: "", stderr: "" });
    const inTerminal = async (more: NodeJS.ProcessEnv) => {
      const { code, stdout } = await startInTerminal("sandgate run default --rm -- echo done", { ...env, ...more })
        .ended;
      expect({ code, stdout }).toMatchObject({ code: 0, stdout: expect.stringMatching(/done\r\n$/) });
      return stdout;
    };
    expect(await inTerminal({})).toContain(`\r${escapeCharacter}[K`);
    expect(await inTerminal({ NO_COLOR: "1" })).toBe("done\r\n");
    // A last line without an end stays, too.
    await box.files.write("/tmp/unended", "no end");
    expect((await startInTerminal("sandgate cp box:/tmp/unended -", env).ended).stdout).toBe("no end");
    // A reader that has enough is no failure.
    const { stdout } = await execute("sh", ["-c", "sandgate help | head -n 1"], { env });
    expect(stdout).toBe("usage: sandgate COMMAND …\n");
  });
});
