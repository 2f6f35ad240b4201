import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus } from "./client.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireProcessLimits, requireSandboxHost } from "./sandbox-host.ts";

const isAvailable = await requireSandboxHost();
const isLimited = isAvailable && (await requireProcessLimits());

describe.runIf(isLimited)("commands at the limits of a sandbox", { timeout: 300_000 }, () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ memoryMb: 256 });
  });
  afterAll(() => box?.close());

  test("with no process left a start is a conflict, and what takes them is listed and ended", async () => {
    const many = { command: "for i in $(seq 350); do sleep 1000 & done; echo full; read line", stdin_open: true };
    const { id } = await box.start({ ...many, tag: "greedy" });
    await until(async () => expect((await box.read(id)).output_bytes).toBe("full\n".length));
    const started: string[] = [];
    const startMore = () => box.target.post(box.path("processes"), { command: ["sleep", "1000"] }, box.as());
    let answer = await startMore();
    // Fewer than may run at once.
    for (; answer.status === 201 && started.length < 60; answer = await startMore()) started.push(answer.body.id);
    expectError(answer, "conflict");
    expect(answer.body.error).toMatchObject({
      message: expect.stringMatching(/could be started/),
      hint: expect.any(String),
    });
    const { processes } = expectStatus(await box.target.get(box.path("processes?state=running"), box.as()), 200);
    expect(processes.map((each: { id: string }) => each.id)).toEqual([id, ...started]);
    expectStatus(await box.target.delete(box.path(`processes/${id}`), box.as()), 204);
    expect((await box.read(id)).state).toBe("exited");
    expect((await box.exec("ps | grep -c '[s]leep 1000$'; true")).stdout).toBe(`${started.length}\n`);
    for (const each of started) await box.kill(each);
  });

  test("a command that is killed for its memory ends with 137, and the next one runs", async () => {
    expect(await box.exec(["tail", "/dev/zero"])).toMatchObject({
      exit_code: 137,
      signal: "SIGKILL",
      timed_out: false,
    });
    expect((await box.exec("echo next")).stdout).toBe("next\n");
  });
});

describe.runIf(isAvailable)("commands of an image whose user isn't root", () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ user: "1000:1000" });
  });
  afterAll(() => box?.close());

  const exec = (user: string) => box.target.post(box.path("exec"), { command: "id -u", user }, box.as());

  test("are of no other user", async () => {
    for (const user of ["ada", "1000", "1000:1000"]) expect(expectStatus(await exec(user), 200).stdout).toBe("1000\n");
    for (const user of ["root", "0", "1000:0", "nobody"]) expectError(await exec(user), "conflict");
    expectInvalid(await exec("no-such-user"), "body.user");
  });
});
