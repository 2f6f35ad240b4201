import { randomUUID } from "node:crypto";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uuid } from "./client.ts";
import type { StreamEvent } from "./event-stream.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";

describe.runIf(await requireSandboxHost())("commands", () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ env: { COLOUR: "blue" }, folder: "/var" });
  });
  afterAll(() => box?.close());

  /** The names of the programs that run in the sandbox, those of the helper left out. */
  const running = async (name: string): Promise<number> => {
    const { stdout } = await box.exec(`for each in /proc/[0-9]*/comm; do cat $each 2>/dev/null; done; true`);
    return stdout.split("\n").filter((each: string) => each === name).length;
  };
  const runsNo = (name: string) => until(async () => expect(await running(name)).toBe(0));

  test("the result has the process and both streams apart", async () => {
    const result = await box.exec({ command: ["sh", "-c", "echo out; echo err >&2; exit 3"], tag: "first" });
    expect(result).toEqual({
      id: uuid,
      pid: expect.any(Number),
      command: ["sh", "-c", "echo out; echo err >&2; exit 3"],
      cwd: "/var",
      user: null,
      tag: "first",
      pty: null,
      state: "exited",
      exit_code: 3,
      signal: null,
      timed_out: false,
      stdin_open: false,
      output_bytes: 8,
      retained_from: 0,
      started_at: isoMilliseconds,
      ended_at: isoMilliseconds,
      stdout: "out\n",
      stderr: "err\n",
      stdout_truncated: false,
      stderr_truncated: false,
      encoding: "utf8",
    });
    const byName = await box.target.post(`/sandboxes/${box.name}/exec`, { command: ["true"] }, box.as());
    expect(expectStatus(byName, 200).exit_code).toBe(0);
  });

  test("a list is run as it is, and a text by a shell", async () => {
    expect((await box.exec(["echo", "$HOME"])).stdout).toBe("$HOME\n");
    expect((await box.exec("echo $HOME")).stdout).toBe("/root\n");
  });

  test("answers 127 for a missing program and 126 for one that can't be run, with the reason in stderr", async () => {
    expect(await box.exec(["no-such-program"])).toMatchObject({
      exit_code: 127,
      pid: null,
      state: "exited",
      stderr: expect.stringContaining("no-such-program"),
    });
    expect(await box.exec(["/etc/passwd"])).toMatchObject({ exit_code: 126, stderr: expect.stringMatching(/\S/) });
  });

  test("runs in the folder that is asked for, which is entered inside of the sandbox", async () => {
    expect((await box.exec({ command: ["pwd"], cwd: "/etc" })).stdout).toBe("/etc\n");
    expect((await box.exec({ command: ["pwd"], cwd: "../tmp" })).stdout).toBe("/tmp\n");
    for (const cwd of ["/no/such", "/etc/passwd"]) {
      expectInvalid(await box.target.post(box.path("exec"), { command: ["pwd"], cwd }, box.as()), "body.cwd");
      expectInvalid(await box.target.post(box.path("processes"), { command: ["pwd"], cwd }, box.as()), "body.cwd");
    }
    for (let descriptor = 3; descriptor < 12; descriptor++) {
      const body = { command: "ls ../../../..; cat ../../../../etc/hostname", cwd: `/proc/self/fd/${descriptor}` };
      const answer = await box.target.post(box.path("exec"), body, box.as());
      if (answer.status === 422) continue;
      expect(expectStatus(answer, 200).stdout).not.toMatch(/containerd|docker|home\b.*\broot\b.*\bsrv\b/s);
    }
  });

  test("has the image's environment, and what the command adds", async () => {
    const { stdout } = await box.exec({ command: "echo $COLOUR $SIZE", env: { SIZE: "big money" } });
    expect(stdout).toBe("blue big money\n");
    expect((await box.exec({ command: "echo $COLOUR", env: { COLOUR: "red" } })).stdout).toBe("red\n");
    for (const env of [{ "A=B": "c" }, { "": "c" }, { "A\0": "c" }]) {
      expectInvalid(await box.target.post(box.path("exec"), { command: "x", env }, box.as()), "body.env");
    }
    expectInvalid(await box.target.post(box.path("exec"), { command: "x", env: { A: "\0" } }, box.as()), "body.env.A");
  });

  test("runs as the user that is asked for, by name or by number", async () => {
    const idOf = async (user?: string) =>
      (await box.exec({ command: "echo $(id -u):$(id -g) $HOME", user })).stdout.trim();
    expect(await idOf()).toBe("0:0 /root");
    expect(await idOf("ada")).toBe("1000:1000 /home/ada");
    expect(await idOf("1000")).toBe("1000:1000 /home/ada");
    expect(await idOf("1234:5678")).toBe("1234:5678 /");
    for (const user of ["ben", "ada:nobody:x"]) {
      expectInvalid(await box.target.post(box.path("exec"), { command: ["id"], user }, box.as()), "body.user");
    }
  });

  test("utf8 keeps characters whole and shows bad bytes, and base64 loses nothing", async () => {
    const split = "printf '\\342'; sleep 0.2; printf '\\202\\254'; printf '\\377' >&2";
    expect(await box.exec(split)).toMatchObject({ stdout: "€", stderr: "\u{fffd}" });
    const bytes = await box.exec({ command: split, encoding: "base64" });
    expect(bytes).toMatchObject({ stdout: "4oKs", stderr: "/w==", encoding: "base64" });
    const events = await all(await box.follow(split));
    expect(textOf(events, "stdout")).toBe("€");
    expect(textOf(events, "stderr")).toBe("\u{fffd}");
  });

  test("ends with the program, though a child holds its output, and the child lives on", async () => {
    const result = await box.exec({ command: "sleep 7777 & echo written before", timeout_seconds: 30 });
    expect(result).toMatchObject({ stdout: "written before\n", exit_code: 0, timed_out: false });
    expect(await running("sleep")).toBeGreaterThan(1);
    await box.exec("pkill -f 'sleep 7777'");
  });

  test("much output on both streams never stops, and its first bytes are kept", async () => {
    const command = "yes out | head -c 67108864 & yes err | head -c 67108864 >&2; wait; exit 5";
    const result = await box.exec({ command, max_output_bytes: 1000, timeout_seconds: 200 });
    expect(result).toMatchObject({
      stdout: "out\n".repeat(250),
      stderr: "err\n".repeat(250),
      stdout_truncated: true,
      stderr_truncated: true,
      exit_code: 5,
      output_bytes: 2 * 67108864,
    });
    const whole = await box.exec({ command: "head -c 1048576 /dev/zero | tr '\\0' a" });
    expect([whole.stdout.length, whole.stdout_truncated]).toEqual([1048576, false]);
  });

  test("without input it is at its end at once; with it, its end follows, and output after that arrives", async () => {
    expect((await box.exec("cat; echo end")).stdout).toBe("end\n");
    expect((await box.exec({ command: "cat; sleep 0.2; echo end", stdin: "€\n" })).stdout).toBe("€\nend\n");
    const binary = { command: ["cat"], stdin: "/wAB", encoding: "base64" };
    expect((await box.exec(binary)).stdout).toBe("/wAB");
    const large = { command: "wc -c", stdin: "x".repeat(512 * 1024) };
    expect((await box.exec(large)).stdout.trim()).toBe(String(512 * 1024));
  });

  test("when the time is up the tree gets SIGTERM and then SIGKILL, with the output so far", async () => {
    const polite = await box.exec({
      command: "trap 'echo bye; exit 4' TERM; echo hi; while :; do sleep 0.1; done",
      timeout_seconds: 1,
    });
    expect(polite).toMatchObject({ timed_out: true, stdout: "hi\nbye\n", exit_code: 4, state: "exited" });
    const startedAt = performance.now();
    const deaf = await box.exec({
      command: "trap '' TERM; (trap '' TERM; sleep 7001) & setsid sleep 7001 & echo hi; sleep 7001",
      timeout_seconds: 1,
    });
    expect(deaf).toMatchObject({ timed_out: true, stdout: "hi\n", signal: "SIGKILL", exit_code: 137 });
    expect(performance.now() - startedAt).toBeGreaterThan(2_900);
    expect((await box.exec("pgrep -f 'sleep 7001' | wc -l")).stdout.trim()).toMatch(/^[01]$/);
  });

  test("one that a signal ended has 128 plus its number, and its name", async () => {
    expect(await box.exec("kill -SEGV $$")).toMatchObject({ exit_code: 139, signal: "SIGSEGV" });
    expect(await box.exec("kill -KILL $$")).toMatchObject({ exit_code: 137, signal: "SIGKILL" });
  });

  test("a time beyond 240 s is for events, and what is for processes alone is refused", async () => {
    const refused = async (body: object, ...fields: string[]) =>
      expectInvalid(await box.target.post(box.path("exec"), { command: ["true"], ...body }, box.as()), ...fields);
    await refused({ timeout_seconds: 241 }, "body.timeout_seconds");
    await refused({ timeout_seconds: 0 }, "body.timeout_seconds");
    await refused({ max_output_bytes: 16 * 1024 * 1024 + 1 }, "body.max_output_bytes");
    await refused({ pty: { cols: 80, rows: 24 } }, "body.pty");
    await refused({ stdin_open: true }, "body.stdin_open");
    await refused({ stdin: "!", encoding: "base64" }, "body.stdin");
    await refused({ command: [] }, "body.command");
    await refused({ command: ["echo", "a\0b"] }, "body.command.1");
    const events = await all(await box.follow({ command: ["true"], timeout_seconds: 86_400 }));
    expect(events.map(({ event }) => event)).toEqual(["start", "exit"]);
  });

  test("events come while it runs, with the bytes of output so far as ids", async () => {
    const events = await box.follow("echo one; until [ -e /tmp/go ]; do sleep 0.05; done; echo two >&2");
    const seen: StreamEvent[] = [];
    for await (const event of events) {
      seen.push(event);
      if (textOf(seen, "stdout") === "one\n" && event.event === "output") await box.exec(["touch", "/tmp/go"]);
    }
    expect(seen[0]).toMatchObject({ id: "0", event: "start", data: { state: "running", exit_code: null } });
    expect(seen.at(-1)).toMatchObject({ event: "exit", data: { state: "exited" } });
    expect(seen.at(-1)?.id).toBe(String(seen.at(-1)?.data.output_bytes));
    const ids = seen.map(({ id }) => Number(id));
    expect(ids).toEqual(ids.toSorted((a, b) => a - b));
  });

  test("a client that leaves ends the tree, unless it is to go on", async () => {
    const leave = async (body: object) => {
      const client = new AbortController();
      const events = await box.follow(body, client.signal);
      const { value: started } = await events.next();
      client.abort();
      return started?.data.id;
    };
    const left = await leave({ command: "setsid sleep 7002 & sleep 7002" });
    await until(async () => expect((await box.read(left)).state).toBe("exited"));
    await until(async () => expect((await box.exec("pgrep -x sleep -f 'sleep 7002' | wc -l")).stdout.trim()).toBe("0"));
    const stays = await leave({ command: ["sleep", "7003"], on_disconnect: "continue" });
    expect(await box.wait(stays, 3)).toMatchObject({ state: "running" });
    expectStatus(await box.target.delete(box.path(`processes/${stays}`), box.as()), 204);
    const client = new AbortController();
    const json = fetch(box.target.url + box.path("exec"), {
      method: "POST",
      body: JSON.stringify({ command: ["sleep", "7004"], tag: "left" }),
      headers: {
        authorization: `Bearer ${box.owner.token}`,
        "x-workspace-id": box.owner.workspace,
        "content-type": "application/json",
      },
      signal: client.signal,
    });
    const tagged = async () =>
      expectStatus(await box.target.get(box.path("processes?tag=left"), box.as()), 200).processes;
    await until(async () => expect(await tagged()).toHaveLength(1));
    client.abort();
    await expect(json).rejects.toThrow();
    await until(async () => expect((await tagged())[0].state).toBe("exited"));
  });

  test("32 at once run at once", async () => {
    // All meet at a gate that the last of them opens.
    const command = "touch /tmp/met.$ME; until [ $(ls /tmp/met.* | wc -l) = 32 ]; do sleep 0.1; done; echo met";
    const runs = Array.from({ length: 32 }, (_, i) => box.exec({ command, env: { ME: String(i) } }));
    for (const { stdout } of await Promise.all(runs)) expect(stdout).toBe("met\n");
  });

  test("the same Idempotency-Key runs once, and conflicts with another command", async () => {
    const headers = { "idempotency-key": randomUUID() };
    const send = (command: string, path = "exec") =>
      box.target.post(box.path(path), { command }, { ...box.as(), headers });
    const [first, second] = await Promise.all([
      send("echo $$ >> /tmp/once; echo x"),
      send("echo $$ >> /tmp/once; echo x"),
    ]);
    expect(expectStatus(second, 200)).toMatchObject({ id: expectStatus(first, 200).id, stdout: "x\n" });
    expect(expectStatus(await send("echo $$ >> /tmp/once; echo x"), 200).id).toBe(first.body.id);
    expect((await box.exec("wc -l < /tmp/once")).stdout.trim()).toBe("1");
    expectError(await send("echo other"), "conflict");
    const started = expectStatus(await send("echo y", "processes"), 201);
    expect(expectStatus(await send("echo y", "processes"), 201).id).toBe(started.id);
    expectError(await send("echo z", "processes"), "conflict");
  });

  test("of two commands with one Idempotency-Key at once one runs", async () => {
    const headers = { "idempotency-key": randomUUID() };
    const commands = ["echo a >> /tmp/either; sleep 1", "echo b >> /tmp/either; sleep 1"];
    const answers = await Promise.all(
      commands.map((command) => box.target.post(box.path("exec"), { command }, { ...box.as(), headers })),
    );
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    expect((await box.exec("wc -l < /tmp/either")).stdout.trim()).toBe("1");
  });

  test("a repetition after a dropped answer gets the result of what runs on", async () => {
    const headers = { "idempotency-key": randomUUID() };
    const body = { command: "echo $$ >> /tmp/dropped; sleep 2; echo done", on_disconnect: "continue" };
    const leaving = new AbortController();
    const dropped = fetch(box.target.url + box.path("exec"), {
      method: "POST",
      headers: {
        ...headers,
        authorization: `Bearer ${box.owner.token}`,
        "x-workspace-id": box.owner.workspace,
        "content-type": "application/json",
      },
      body: JSON.stringify(body),
      signal: leaving.signal,
    });
    await until(async () => expect((await box.exec("cat /tmp/dropped")).stdout).not.toBe(""));
    leaving.abort();
    await expect(dropped).rejects.toThrow();
    const repeated = await box.target.post(box.path("exec"), body, { ...box.as(), headers });
    expect(expectStatus(repeated, 200)).toMatchObject({ exit_code: 0, stdout: "done\n" });
    expect((await box.exec("wc -l < /tmp/dropped")).stdout.trim()).toBe("1");
  });

  test("is refused unless the sandbox is ready, and another's looks like none", async () => {
    const { target, stranger } = box;
    const answers = [
      await target.post(box.path("exec"), { command: ["true"] }, box.as(stranger)),
      await target.post(`/sandboxes/${randomUUID()}/exec`, { command: ["true"] }, box.as()),
      await target.get(box.path("processes"), box.as(stranger)),
      await target.get(box.path(`processes/${randomUUID()}`), box.as(stranger)),
      await target.get(box.path("processes/none"), box.as(stranger)),
    ];
    for (const answer of answers) expectError(answer, "sandbox_not_found");
    expectError(await target.get(box.path(`processes/${randomUUID()}`), box.as()), "not_found");
    expectError(await target.get(box.path("processes/none"), box.as()), "not_found");
    const id = await box.provision();
    expectStatus(await target.delete(`/sandboxes/${id}`, box.as()), 204);
    const ended = await target.post(`/sandboxes/${id}/exec`, { command: ["true"] }, box.as());
    expectError(ended, "conflict");
    expect(ended.body.error.message).toContain("stopped_by_user");
  });

  test("no zombie and no file is left of many short ones", async () => {
    const zombies = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    const before = (await box.exec("find / -xdev -type f | wc -l")).stdout;
    for (let i = 0; i < 20; i++) await Promise.all(Array.from({ length: 10 }, () => box.exec(["true"])));
    expect((await box.exec(zombies)).stdout.trim()).toBe("0");
    expect((await box.exec("find / -xdev -type f | wc -l")).stdout).toBe(before);
    await runsNo("true");
  });

  test("their output is not in the sandbox's logs", async () => {
    await box.exec("echo a-secret-of-a-command");
    const { logs } = expectStatus(await box.target.get(`/sandbox/monitoring/${box.id}`, box.as()), 200);
    expect(JSON.stringify(logs)).not.toContain("a-secret-of-a-command");
  });
});

async function all(events: AsyncIterable<StreamEvent>): Promise<StreamEvent[]> {
  const found: StreamEvent[] = [];
  for await (const event of events) found.push(event);
  return found;
}

function textOf(events: readonly StreamEvent[], stream: string): string {
  return events
    .filter(({ event, data }) => event === "output" && data.stream === stream)
    .map(({ data }) => data.data)
    .join("");
}
