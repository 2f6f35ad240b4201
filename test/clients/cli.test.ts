// The command line in front of a real platform, in pipes and in a terminal.
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Sandbox, Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type UsedPlatform, usePlatform } from "../platform/given.ts";
import { withoutSettings } from "../platform/local.ts";
import { program, sandgate, startInTerminal, startSandgate } from "./command-line.ts";

describe.runIf(await requireServer("docker", probeEngine))("the command line", () => {
  let platform: UsedPlatform;
  let folder: { path: string; remove(): Promise<void> };
  let env: NodeJS.ProcessEnv;
  let client: Sandgate;
  let sandbox: Sandbox;
  const run = (args: string[], stdin?: string) => sandgate(args, { env, ...(stdin !== undefined && { stdin }) });
  const ok = async (...args: string[]) => {
    const { code, stdout, stderr } = await run(args);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    return stdout;
  };

  beforeAll(async () => {
    platform = await usePlatform();
    folder = await createTempFolder();
    client = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    env = {
      ...withoutSettings(process.env),
      SANDGATE_URL: platform.url,
      SANDGATE_CONFIG: join(folder.path, "config/login.json"),
    };
    const { token } = await client.apiTokens.create({ description: "cli" });
    const { code, stderr } = await run(["login"], `${token}\n`);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    sandbox = await client.sandboxes.create("default", { name: "box" });
  });
  afterAll(async () => {
    await platform?.stop();
    await folder?.remove();
  });

  test("stores a token from stdin so that its user alone can read it, and says who is signed in", async () => {
    expect((await stat(env.SANDGATE_CONFIG ?? "")).mode & 0o777).toBe(0o600);
    expect(JSON.parse(await ok("whoami", "-o", "json"))).toMatchObject({
      username: platform.admin.username,
      credential: "api_token",
      url: platform.url,
    });
  });

  test("signs in by password in a terminal, runs a shell in a sandbox of its own, and signs out", async () => {
    const own = { ...env, SANDGATE_CONFIG: join(folder.path, "own.json"), TERM: "xterm" };
    const login = startInTerminal(`${program} login`, own);
    await login.says("Email: ");
    login.type(`${platform.admin.username}\n`);
    await login.says("Password: ");
    login.type(`${platform.admin.password}\n`);
    expect(await login.ended).toMatchObject({ code: 0 });
    expect(login.output()).not.toContain(platform.admin.password);

    const shell = startInTerminal(`${program} run --rm --name fleeting -it default -- sh`, own);
    await shell.says("# ");
    shell.type("stty size; echo in-$((20 + 22))\n");
    await shell.says(/24 80\s+in-42/);
    // Ctrl-C goes to the program.
    shell.type("echo so; sleep 1000\n");
    await shell.says(/\nso/);
    shell.type("\u0003");
    await shell.says(/\^C[\s\S]*# /);
    shell.type("exit 5\n");
    expect((await shell.ended).code).toBe(5);
    expect((await client.sandboxes.get("fleeting")).state).toMatch(/stop/);

    const token = JSON.parse(await readFile(own.SANDGATE_CONFIG, "utf8")).token;
    expect(await sandgate(["tokens", "-o", "json"], { env: own })).toMatchObject({ code: 0 });
    expect(await sandgate(["logout"], { env: own })).toMatchObject({ code: 0 });
    await expect(new Sandgate({ url: platform.url, token }).account.get()).rejects.toMatchObject({ status: 401 });
  });

  test("exec passes output, input with -i alone, and the exit code", async () => {
    const result = await run([
      "exec",
      "-e",
      "A=b",
      "-w",
      "/tmp",
      "box",
      "sh",
      "-c",
      'echo "$A $PWD"; echo bad >&2; exit 9',
    ]);
    expect(result).toEqual({ code: 9, stdout: "b /tmp\n", stderr: "bad\n" });
    expect(await run(["exec", "box", "cat"], "not read")).toEqual({ code: 0, stdout: "", stderr: "" });
    const text = "line\n".repeat(300_000);
    expect(await run(["exec", "-i", "box", "--", "cat"], text)).toEqual({ code: 0, stdout: text, stderr: "" });
  });

  test("Ctrl-C ends the command inside, with exit code 130", async () => {
    const running = startSandgate(["exec", "box", "sh", "-c", "echo begun; exec sleep 1234"], env);
    await running.says("begun");
    running.kill("SIGINT");
    expect((await running.ended).code).toBe(130);
    await until(async () => expect(await sandbox.commands.list({ state: "running" })).toEqual([]));
  });

  test("copies files both ways, by name, through pipes, and whole folders", async () => {
    const local = join(folder.path, "a.bin");
    const content = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * 7) % 256));
    await writeFile(local, content, { mode: 0o750 });
    await ok("cp", local, "box:/tmp/a.bin");
    expect(await sandbox.files.stat("/tmp/a.bin")).toMatchObject({ mode: "0750", size: content.length });
    await ok("cp", "box:/tmp/a.bin", join(folder.path, "back.bin"));
    expect((await readFile(join(folder.path, "back.bin"))).equals(content)).toBe(true);
    expect(await run(["cp", "-", "box:/tmp/typed"], "typed")).toMatchObject({ code: 0 });
    expect(await ok("cp", "box:/tmp/typed", "-")).toBe("typed");

    await sandbox.commands.run("mkdir -p /tmp/tree/sub; echo 1 > /tmp/tree/one; echo 2 > /tmp/tree/sub/two", {
      check: true,
    });
    await ok("cp", "-r", "box:/tmp/tree", join(folder.path, "tree"));
    expect(await readFile(join(folder.path, "tree/sub/two"), "utf8")).toBe("2\n");
    await ok("cp", "-r", join(folder.path, "tree"), "box:/tmp/tree2");
    expect(await sandbox.files.read("/tmp/tree2/sub/two")).toBe("2\n");
  });

  test("lists sandboxes as a table, as JSON and by name; finds one by how its id begins", async () => {
    await ok("run", "default", "--name", "labelled", "--label", "a=b");
    expect(await ok("ps", "--label", "a=b", "-o", "name")).toBe("labelled\n");
    expect(await ok("ps")).toMatch(/^NAME +STATE +IMAGE .*\n(?:.*\n)*box +ready /m);
    const [{ id }] = JSON.parse(await ok("ps", "--label", "a=b", "-o", "json"));
    expect(await ok("exec", id.slice(0, -2), "echo", "found")).toBe("found\n");
    await ok("extend", "labelled", "20m");
    await ok("stop", "labelled");
    expect(await ok("ps", "-q", "--label", "a=b", "--state", "ready")).toBe("");
  });

  test("shows logs, follows them until the sandbox has ended, and shows its use", async () => {
    const made = await client.sandboxes.create("default", {
      name: "talker",
      command: ["sh", "-c", "for i in 1 2 3; do echo line $i; sleep 1; done; httpd -f -p 8080 -h /www"],
    });
    await until(async () => expect(await ok("logs", "talker")).toBe("line 1\nline 2\nline 3\n"));
    const following = startSandgate(["logs", "-f", "talker"], env);
    await following.says("line 3");
    expect(await ok("stats", "talker")).toMatch(/memory: +\d/);
    await made.stop();
    expect(await following.ended).toEqual({ code: 0, stdout: "line 1\nline 2\nline 3\n", stderr: "" });
  });

  test("opens a port, and forwards one to a local one", async () => {
    await sandbox.files.write("/tmp/site/index.html", "hello", { parents: true });
    await sandbox.commands.start(["httpd", "-f", "-p", "127.0.0.1:3000", "-h", "/tmp/site"]);
    expect(await ok("port", "box", "3000", "-o", "name")).toMatch(/^https?:\/\/\S+\n$/);
    const forwarding = startSandgate(["forward", "box", "0:3000"], env);
    await forwarding.says("is forwarded");
    const port = /127\.0\.0\.1:(\d+)/.exec(forwarding.output())?.[1];
    expect(await (await fetch(`http://127.0.0.1:${port}/index.html`)).text()).toBe("hello");
    forwarding.kill("SIGINT");
    expect((await forwarding.ended).code).toBe(130);
  });

  test("manages images, registries, tokens and workspaces, and shows the audit log", async () => {
    await ok("images", "add", "other", "docker.io/library/busybox:1", "--memory", "256", "--ttl", "10m");
    expect(await ok("images", "-o", "name")).toContain("other\n");
    await ok("images", "disable", "other");
    await ok("images", "rm", "other");
    expect(await ok("images", "-o", "name")).not.toContain("other\n");
    expect(await ok("registries")).toMatch(/^NAME/);
    expect(await ok("workspaces")).toMatch(/\* +\S+/);
    expect(await ok("audit", "--limit", "3")).toMatch(/image\.delete/);
    const refused = await run(["tokens"]);
    expect(refused).toMatchObject({ code: 1, stdout: "" });
  });

  test("errors have hint and request id on stderr; wrong usage is 2; no colours in a pipe", async () => {
    const missing = await run(["exec", "missing", "true"]);
    expect(missing).toMatchObject({ code: 1, stdout: "" });
    expect(missing.stderr).toMatch(/^error: .+\nhint: .+\nrequest id: \S+\n$/);
    expect(await run(["exec"])).toMatchObject({ code: 2, stderr: expect.stringContaining("usage: sandgate exec") });
    expect(await run(["nope"])).toMatchObject({ code: 2 });
    expect(await run(["ps", "--nope"])).toMatchObject({ code: 2 });
    expect(await ok("ps", "-a")).not.toContain("\u001b");
  });
});
