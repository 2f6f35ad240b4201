import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "./client.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";

describe.runIf(await requireSandboxHost())("what a tenant finds inside a sandbox", () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ env: { COLOUR: "blue" } });
    // The helper runs from now on.
    await box.exec(["true"]);
  });
  afterAll(() => box?.close());

  const output = async (command: string): Promise<string> => (await box.exec(command)).stdout;

  test("no process has a credential of the platform in its environment or its arguments", async () => {
    const said = await output("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'");
    expect(said).toContain("COLOUR=blue");
    expect(said).not.toMatch(/sgt_|eyJ|bearer|password|secret/i);
    // Of ours, the program's own path alone, and the name of a pod.
    const ours = said.split("\n").filter((line) => /sandgate/i.test(line));
    expect(ours.filter((line) => !/\/\.sandgate\/helper|^HOSTNAME=sandgate-[0-9a-f-]{36}$/.test(line))).toEqual([]);
  });

  test("the helper's folder has the helper alone, and nobody can change it", async () => {
    expect((await output("ls -A /.sandgate")).trim()).toBe("helper");
    const { stdout } = await box.exec(
      "for each in 'touch /.sandgate/x' 'rm /.sandgate/helper' 'chmod 777 /.sandgate/helper' 'mv /bin/busybox /.sandgate/'; do $each 2>/dev/null && echo done; done; true",
    );
    expect(stdout).toBe("");
  });

  test("no port is open, and no socket of ours has a name in the file system", async () => {
    const listening = await output(
      "cat /proc/net/tcp /proc/net/tcp6 /proc/net/udp 2>/dev/null | grep -c ' 0A ' ; true",
    );
    expect(listening.trim()).toBe("0");
    expect(await output("find / -xdev -type s 2>/dev/null; true")).toBe("");
    const { ports } = expectStatus(await box.target.get(box.path("listening"), box.as()), 200);
    expect(ports).toEqual([]);
  });

  test("a program of another user reaches no process of the sandbox's user by the helper", async () => {
    const { id } = await box.start(["sleep", "1000"]);
    // Of a user of its own it is a helper of its own, which knows nothing.
    const dialled = await box.exec({
      command: "sleep 1 | timeout 5 /.sandgate/helper dial | od -c | head -c 2000; true",
      user: "ada",
    });
    expect(dialled.stdout).not.toContain(id);
    const killed = await box.exec({ command: "kill -9 -1; kill -9 1; true", user: "ada" });
    expect(killed.exit_code).not.toBeNull();
    expect((await box.read(id)).state).toBe("running");
  });
});
