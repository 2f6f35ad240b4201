// The Python client over a network that cuts, delays and repeats: nothing is doubled, and nothing is lost.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { Sandgate } from "@sandgate/client";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform, withoutSettings } from "../platform/local.ts";
import { createRandom, type FaultyNetwork, openFaultyNetwork } from "./http-faults.ts";
import { installPythonTools, pythonClient, pythonEnv } from "./python.ts";

const count = Number(process.env.SANDGATE_FAULT_SANDBOXES ?? 24);
const isHere = (await requireServer("docker", probeEngine)) && (await requireServer("python", installPythonTools));

describe.runIf(isHere)("the Python client over a faulty network", { timeout: 120_000 + count * 20_000 }, () => {
  let platform: TestPlatform;
  let network: FaultyNetwork;
  let direct: Sandgate;

  beforeAll(async () => {
    platform = await startPlatform();
    direct = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    network = await openFaultyNetwork({ url: platform.url, random: createRandom(2), rate: 0.25 });
  });
  afterAll(async () => {
    await network?.close();
    await platform?.stop();
  });

  test(`${count} sandboxes are made, run commands and end, each once, and followed logs have each line once`, async () => {
    const { token } = await direct.apiTokens.create({ description: "faults" });
    const { stdout } = await promisify(execFile)(
      await installPythonTools(),
      [join(pythonClient, "tests/faults.py"), String(count)],
      {
        env: {
          ...withoutSettings(process.env),
          ...pythonEnv,
          SANDGATE_URL: network.url,
          SANDGATE_TOKEN: token,
        },
      },
    );
    const ids: string[] = JSON.parse(stdout);
    expect(new Set(ids).size).toBe(count);
    const made = await direct.sandboxes.list({ labels: { run: "faults" } });
    expect(made.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
    await until(async () => {
      expect(await direct.sandboxes.list({ state: ["provisioning", "ready"] })).toEqual([]);
    });
    // Each fault was there, or this shows nothing.
    for (const times of Object.values(network.happened)) expect(times).toBeGreaterThan(count / 10);
  });
});
