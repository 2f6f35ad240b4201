import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus } from "./client.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";

describe.runIf(await requireSandboxHost())("commands at the limits of a sandbox", { timeout: 300_000 }, () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ memoryMb: 256 });
  });
  afterAll(() => box?.close());

  const exec = (body: object) => box.target.post(box.path("exec"), body, box.as());

  test("with no process left a start is a conflict, and what takes them is listed and ended", async () => {
    // Those of the inner shell, which ends when it can start no more, stay with the outer one. A host without a limit is
    // to outlive this.
    const command = "(for i in $(seq 3000); do sleep 1000 & done) 2>/dev/null; read line";
    const { id } = await box.start({ command, stdin_open: true, tag: "greedy" });
    await until(async () => {
      const answer = await exec({ command: ["true"] });
      expectError(answer, "conflict");
      expect(answer.body.error).toMatchObject({ message: expect.stringMatching(/started/), hint: expect.any(String) });
    });
    const { processes } = expectStatus(await box.target.get(box.path("processes?tag=greedy"), box.as()), 200);
    expect(processes).toEqual([expect.objectContaining({ id, state: "running" })]);
    expectStatus(await box.target.delete(box.path(`processes/${id}`), box.as()), 204);
    expect((await box.read(id)).state).toBe("exited");
    await until(async () => expectStatus(await exec({ command: ["true"] }), 200));
    expect((await box.exec("ps | grep -c '[s]leep 1000$'; true")).stdout).toBe("0\n");
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

describe.runIf(await requireSandboxHost())("commands of an image whose user isn't root", () => {
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
