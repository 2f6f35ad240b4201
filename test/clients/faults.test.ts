// The TypeScript client over a network that cuts, delays and repeats: nothing is doubled, and nothing is lost. A hundred
// sandboxes; `npm run fault -- clients` has a thousand.
import { Sandbox, Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import pLimit from "p-limit";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { createRandom, type FaultyNetwork, openFaultyNetwork } from "./http-faults.ts";

const count = Number(process.env.SANDGATE_FAULT_SANDBOXES ?? 100);
const atOnce = 8;
const rate = 0.25;

describe.runIf(await requireServer("docker", probeEngine))("over a faulty network", { timeout: count * 20_000 }, () => {
  let platform: TestPlatform;
  let network: FaultyNetwork;
  let direct: Sandgate;
  let settings: { url: string; token: string };

  beforeAll(async () => {
    platform = await startPlatform();
    direct = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const { token } = await direct.apiTokens.create({ description: "faults" });
    network = await openFaultyNetwork({ url: platform.url, random: createRandom(1), rate });
    settings = { url: network.url, token };
  });
  afterAll(async () => {
    await network?.close();
    await platform?.stop();
  });

  test(`${count} sandboxes are made, run commands and end, each once`, async () => {
    // As many tries as a rate of one in four calls for.
    const client = new Sandgate({ ...settings, maxRetries: 12 });
    const lines = Array.from({ length: 500 }, (_, i) => `line ${i + 1}\n`).join("");
    async function use(i: number): Promise<string> {
      const sandbox = await client.sandboxes.create("default", { labels: { run: "faults" } });
      const command = `echo ${i} >> /tmp/runs; cat; for i in $(seq 1 500); do echo line $i; done; echo end >&2; exit 3`;
      const result = await sandbox.commands.run(command, { stdin: `input ${i}\n` });
      expect(result).toMatchObject({ stdout: `input ${i}\n${lines}`, stderr: "end\n", exitCode: 3, lostBytes: 0 });
      const process = await sandbox.commands.start(["cat"], { stdinOpen: true });
      for (const word of ["a", "b", "c\n"]) await process.write(word);
      await process.closeStdin();
      let output = "";
      for await (const { data } of process.output) output += data;
      expect(output).toBe("abc\n");
      expect(await sandbox.files.read("/tmp/runs")).toBe(`${i}\n`);
      expect(await sandbox.commands.list()).toHaveLength(2);
      await sandbox.stop();
      return sandbox.id;
    }
    const limit = pLimit(atOnce);
    const ids = await Promise.all(Array.from({ length: count }, (_, i) => limit(() => use(i))));
    expect(new Set(ids).size).toBe(count);

    const made = await direct.sandboxes.list({ labels: { run: "faults" } });
    expect(made.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
    await until(async () => {
      expect(await direct.sandboxes.list({ labels: { run: "faults" }, state: ["provisioning", "ready"] })).toEqual([]);
    });
    // Each fault was there, or this shows nothing.
    for (const times of Object.values(network.happened)) expect(times).toBeGreaterThan(count / 10);
  });

  test("followed logs have each line once", async () => {
    await using sandbox = await Sandbox.create("default", {
      ...settings,
      maxRetries: 12,
      command: [
        "sh",
        "-c",
        "httpd -p 8080 -h /www; for i in $(seq 1 200); do echo line $i; sleep 0.05; done; sleep 3600",
      ],
    });
    const seen: string[] = [];
    for await (const { log } of sandbox.logs({ follow: true })) {
      seen.push(log);
      if (log === "line 200") break;
    }
    expect(seen.filter((log) => log.startsWith("line "))).toEqual(
      Array.from({ length: 200 }, (_, i) => `line ${i + 1}`),
    );
  });
});
