import { appendFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { startServiceHost } from "@sandgate/kit/process/host";
import { asFacade, asService } from "@sandgate/kit/rpc/context";
import { makeKeys, openTokenVerifier } from "@sandgate/kit/rpc/internal-keys";
import { findFreePort, startProcess } from "@sandgate/test-support/process";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import { logger, openPodTelemetry } from "./collect/node-collector.fixture.ts";

test("the collector is a process that needs telemetry alone, and goes on when that comes back", async ({ folder }) => {
  const [sandboxId, workspaceId] = [newId(), newId()];
  const telemetry = await openPodTelemetry({ folder, workspaceOf: () => workspaceId });
  const keys = join(folder, "keys");
  await makeKeys(keys);
  const verifier = await openTokenVerifier({ audience: "telemetry", file: join(keys, "jwks.json"), logger });
  const port = await findFreePort();
  const serve = () =>
    startServiceHost({
      service: "telemetry",
      verifier,
      logger,
      metrics: createMetrics(),
      host: "127.0.0.1",
      port,
      drainMs: 100,
      routes: telemetry.service.routes,
    });
  const log = join(folder, "pods", `sandboxes_sandgate-${sandboxId}_${newId()}`, "sandbox");
  await mkdir(log, { recursive: true });
  const write = (text: string) => appendFile(join(log, "0.log"), `${new Date().toISOString()} stdout F ${text}\n`);
  await write("first");

  const adminPort = await findFreePort();
  const main = join(import.meta.dirname, "collector.main.ts");
  const collector = startProcess(process.execPath, [main], {
    env: {
      SANDGATE_ADMIN_HOST: "127.0.0.1",
      SANDGATE_ADMIN_PORT: String(adminPort),
      SANDGATE_INTERNAL_KEY_FILE: join(keys, "collector.jwk.json"),
      SANDGATE_TELEMETRY_URL: `http://127.0.0.1:${port}`,
      SANDGATE_KUBERNETES_NAMESPACE: "sandboxes",
      SANDGATE_POD_LOGS: join(folder, "pods"),
      SANDGATE_KUBELET_URL: "https://127.0.0.1:1",
    },
  });
  const stateOf = async () => (await fetch(`http://127.0.0.1:${adminPort}/readyz`)).json();
  const readLines = async () => {
    const user = { id: "u1", credential: "session", credentialId: "s1", operator: false } as const;
    const call = asFacade({ requestId: newId(), user: { ...user, workspaceId, role: "member" } });
    const { logs } = await telemetry.as.facade.queryTelemetry({ sandboxId, includeLogs: true }, call);
    return logs.map(({ log: text }) => text);
  };
  try {
    // It is ready without telemetry: what it can't store yet the kubelet keeps.
    const dependencies = { telemetry: "can't be reached", pods: "ok" };
    await until(async () => expect(await stateOf()).toEqual({ ready: true, dependencies }));
    let host = await serve();
    await until(async () => expect(await readLines()).toEqual(["first"]));
    // Nothing is there to be asked for figures.
    const pods = expect.stringMatching(/^the kubelet's figures can't be had: .*token/);
    await until(async () => expect(await stateOf()).toMatchObject({ ready: true, dependencies: { pods } }));
    await host.close();
    await write("second");
    host = await serve();
    const drained = telemetry.as.sandbox.awaitDrained({ sandboxId, timeoutSeconds: 60 }, asService({ timeoutMs: 0 }));
    expect((await drained).drained).toBe(true);
    expect(await readLines()).toEqual(["first", "second"]);
    expect(await collector.stop()).toBe(0);
    await host.close();
  } finally {
    await collector.kill();
    verifier.close();
    await telemetry.close();
  }
});
