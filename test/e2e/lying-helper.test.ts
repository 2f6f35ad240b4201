import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { buildImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectStatus } from "../conformance/client.ts";
import { installationOf, listInstallation, startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

const execute = promisify(execFile);
const mebibyte = 1024 * 1024;
/** Beside what the platform's own work takes, and far less than what a liar says in a call. */
const mostGrowthBytes = 128 * mebibyte;

/** What programs that say they are the helper do, in a shell; `frame` prints the head of an HTTP/2 frame (RFC 9113, 4.1). */
const liars = {
  "that says noise": "exec yes noise",
  "that says zeros": "exec cat /dev/zero",
  "that says nothing": "exec sleep 1000",
  "that ends at once": "exit 0",
  "that has a frame of 16 MiB": `frame '\\0\\0\\0' '\\4' '\\0' '\\0'; frame '\\377\\377\\377' '\\0' '\\0' '\\1'; exec cat /dev/zero`,
  "that sends pings without end": `frame '\\0\\0\\0' '\\4' '\\0' '\\0'
    { frame '\\0\\0\\10' '\\6' '\\0' '\\0'; printf 12345678; } > /tmp/ping
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do cat /tmp/ping /tmp/ping > /tmp/pings; mv /tmp/pings /tmp/ping; done
    while cat /tmp/ping; do :; done`,
  "that has headers without end": `frame '\\0\\0\\0' '\\4' '\\0' '\\0'; frame '\\0\\0\\1' '\\1' '\\0' '\\1'; printf '\\210'
    { frame '\\0\\100\\0' '\\11' '\\0' '\\1'; head -c 16384 /dev/zero | tr '\\0' '\\210'; } > /tmp/more
    for i in 1 2 3 4 5 6; do cat /tmp/more /tmp/more > /tmp/mores; mv /tmp/mores /tmp/more; done
    while cat /tmp/more; do :; done`,
};
const frame = `frame() { printf "$1$2$3\\0\\0\\0$4"; }`;

const isAvailable = await requireServer("docker", async () => {
  await probeEngine();
  await execute("nsenter", ["--mount", "--target", String(process.pid), "true"]);
});

describe.runIf(isAvailable)("a helper that a tenant replaced", { timeout: 600_000 }, () => {
  const engine = openTestEngine();
  let platform: TestPlatform;
  let operator: Operator;
  let image: TestImage;
  let liar: string;
  let other: string;

  beforeAll(async () => {
    image = await buildImage(engine, { command: ["sleep", "100000"], files: { "/liar": "#!/bin/sh\n. /lie\n" } });
    platform = await startPlatform({ settings: { SANDGATE_LOG_LEVEL: "warn" } });
    operator = await openOperator(platform);
    const imageId = await operator.registerImage(image.reference);
    [liar, other] = await Promise.all([operator.provisionReady(imageId), operator.provisionReady(imageId)]);
    // What no tenant can do: it is mounted over the helper.
    await runAsHost(liar, "chmod 755 /liar && touch /lie && mount -o bind /liar /.sandgate/helper");
    await exec(other);
  });
  afterAll(async () => {
    await platform?.stop();
    await image?.remove();
  });

  /** Runs a script in the files of a sandbox, with the rights of the machine's root. */
  async function runAsHost(sandboxId: string, script: string): Promise<void> {
    const [container] = await listInstallation(installationOf(platform.dataFolder), sandboxId);
    const { State } = await engine.getContainer(container?.Id ?? expect.unreachable()).inspect();
    await execute("nsenter", ["--mount", "--target", String(State.Pid), "/bin/sh", "-c", script]);
  }

  const exec = (sandboxId: string) =>
    operator.post(`/sandboxes/${sandboxId}/exec`, { command: ["echo", "hi"] }, operator.as);

  /** Of the platform's process, in bytes. */
  async function residentBytes(): Promise<number> {
    const status = await readFile(`/proc/${platform.process.child.pid}/status`, "utf8");
    return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
  }

  test.each(Object.entries(liars))("%s costs its own calls, and little memory", async (_, script) => {
    const lie = `${frame}\n${script}\n`;
    await runAsHost(liar, `printf %s '${Buffer.from(lie).toString("base64")}' | base64 -d > /lie`);
    const before = await residentBytes();
    let most = before;
    let hasEnded = false;
    const watching = (async () => {
      while (!hasEnded) {
        most = Math.max(most, await residentBytes());
        await delay(50);
      }
    })();
    try {
      const lies = Promise.all([
        exec(liar),
        operator.get(`/sandboxes/${liar}/processes`, operator.as),
        operator.get(`/sandboxes/${liar}/files/entry?path=/`, operator.as),
        operator.get(`/sandboxes/${liar}/listening`, operator.as),
      ]);
      for (let i = 0; i < 20; i++) expect(expectStatus(await exec(other), 200).stdout).toBe("hi\n");
      for (const answer of await lies) expectError(answer, "upstream_error");
      expect(expectStatus(await exec(other), 200).stdout).toBe("hi\n");
    } finally {
      hasEnded = true;
      await watching;
    }
    expect(most - before).toBeLessThan(mostGrowthBytes);
  });
});
