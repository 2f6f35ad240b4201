import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { peakGrowthMb } from "../../bench/process-figures.ts";
import { expectStatus } from "../../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../../platform/local.ts";
import { type Operator, openOperator } from "../../platform/operator.ts";

const mebibyte = 1024 * 1024;
const mostGrowthMb = 32;

/** Prints each process of ours in a sandbox with a field of its status, in kB. */
const printProcesses = (field: string) =>
  `for each in /proc/[0-9]*; do if grep -q '^/.sandgate/helper' $each/cmdline; then
    echo $each $(grep ${field} $each/status); fi; done 2>/dev/null; true`;

describe.runIf(await requireServer("docker", probeEngine))("a body of 1 GiB", { timeout: 1_800_000 }, () => {
  let platform: TestPlatform;
  let operator: Operator;
  let sandboxId: string;

  beforeAll(async () => {
    platform = await startPlatform();
    operator = await openOperator(platform);
    sandboxId = await operator.provisionReady(operator.defaultImageId);
    // What it takes once: code that is compiled, pools, connections.
    await sendThereAndBack(64 * mebibyte);
  });
  afterAll(() => platform?.stop());

  async function exec(command: string): Promise<string> {
    const body = { command, timeout_seconds: 240 };
    return expectStatus(await operator.post(`/sandboxes/${sandboxId}/exec`, body, operator.as), 200).stdout;
  }

  function open(method: string, headers = {}) {
    const { token, workspace } = operator.as;
    const url = `${platform.url}/sandboxes/${sandboxId}/files?path=/tmp/body`;
    return request(url, {
      method,
      headers: { authorization: `Bearer ${token}`, "x-workspace-id": workspace, ...headers },
    });
  }

  /** Writes bytes of which no two MiB are the same, and reads them again. */
  async function sendThereAndBack(size: number): Promise<void> {
    const sent = createHash("sha256");
    const block = randomBytes(mebibyte);
    function* makeBlocks() {
      for (let index = 0; index < size / mebibyte; index++) {
        const bytes = Buffer.from(block);
        bytes.writeUInt32BE(index);
        sent.update(bytes);
        yield bytes;
      }
    }
    const put = open("PUT", { "content-type": "application/octet-stream", "content-length": size });
    const [[answer]] = await Promise.all([
      once(put, "response") as Promise<[IncomingMessage]>,
      pipeline(Readable.from(makeBlocks()), put),
    ]);
    answer.resume();
    expect([200, 201]).toContain(answer.statusCode);
    const digest = sent.digest("hex");
    expect(await exec("sha256sum < /tmp/body")).toContain(digest);

    const get = open("GET").end();
    const [content] = (await once(get, "response")) as [IncomingMessage];
    expect([content.statusCode, content.headers["content-length"]]).toEqual([200, String(size)]);
    const received = createHash("sha256");
    await pipeline(content, received);
    expect(received.digest("hex")).toBe(digest);
  }

  /** kB by process. */
  async function readProcesses(field: string): Promise<Map<string, number>> {
    const lines = (await exec(printProcesses(field))).trim().split("\n");
    return new Map(lines.map((line) => [line.split(" ")[0] ?? "", Number(/(\d+) kB/.exec(line)?.[1])]));
  }

  test("comes back equal, and no process of ours needs 32 MiB more for it", async () => {
    const before = await readProcesses("VmRSS");
    expect(before.size).toBeGreaterThan(0);
    const growthMb = await peakGrowthMb(platform.process.child.pid, () => sendThereAndBack(1024 * mebibyte));
    const peaks = await readProcesses("VmHWM");
    const inside = [...before].map(([pid, kb]) => ((peaks.get(pid) ?? kb) - kb) / 1024);
    process.stdout.write(
      `grew by ${Math.round(growthMb)} MiB, in the sandbox by ${inside.map(Math.round).join(", ")} MiB\n`,
    );
    for (const growth of [growthMb, ...inside]) expect(growth).toBeLessThan(mostGrowthMb);
  });
});
