import { createServer } from "node:http";
import { join } from "node:path";
import { openEngine } from "@sandgate/docker-engine/client";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect, vi } from "vitest";
import { createIsolation, resolverReason } from "./isolation.ts";
import { hostNamesOf } from "./names.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

test("names the engines that run their resolver in every container", () => {
  const reasonOf = (ServerVersion: string, LiveRestoreEnabled = false) =>
    resolverReason({ ServerVersion, LiveRestoreEnabled });
  expect(["20.10.24+dfsg1", "25.0.6"].map((version) => reasonOf(version))).toEqual([undefined, undefined]);
  expect(["26.0.0", "29.1.0", "library-import"].map((version) => reasonOf(version))).toEqual([
    expect.stringContaining("26.0.0"),
    expect.stringContaining("29.1.0"),
    expect.stringContaining("library-import"),
  ]);
  expect(reasonOf("20.10.24", true)).toContain("live-restore");
});

test.for([
  ["in another network namespace, or on another machine", { name: "elsewhere0", said: "bridge elsewhere0 is not on" }],
  ["of this machine", { name: "lo", said: "iptables-save could not be run" }],
  ["without a default bridge", { name: undefined, said: "iptables-save could not be run" }],
] as const)(
  "looks where an engine is before it sets rules: %s",
  async ([_where, { name, said }], { folder, onTestFinished }) => {
    const info = {
      ServerVersion: "25.0.0",
      MemoryLimit: true,
      PidsLimit: true,
      CpuCfsQuota: true,
      SecurityOptions: ["name=seccomp,profile=default"],
    };
    const server = createServer(({ url = "" }, response) => {
      const isMissing = url.startsWith("/networks/") && name === undefined;
      const network = { Options: { "com.docker.network.bridge.name": name } };
      response.writeHead(isMissing ? 404 : 200, { "content-type": "application/json" });
      response.end(JSON.stringify(url.startsWith("/networks/") ? network : info));
    });
    const socket = join(folder, "engine.sock");
    await new Promise<void>((resolve) => server.listen(socket, resolve));
    onTestFinished(() => void server.close());
    vi.stubEnv("PATH", "/nowhere");
    const isolation = createIsolation({
      engine: openEngine(`docker://${socket}`),
      names: hostNamesOf("i1"),
      enforce: true,
      ociRuntime: undefined,
      policy: {
        maxConnections: 0,
        newConnectionsPerSecond: 0,
        bandwidthMbit: 0,
        nameservers: [],
        smtp: false,
        deny: [],
        allow: [],
      },
      totals: {},
      logger: createLogger({ service: "sandbox", level: "silent" }),
    });
    const refusal = { reason: "ISOLATION_UNAVAILABLE", message: expect.stringContaining(said) };
    await expect(isolation.verify()).rejects.toMatchObject(refusal);
  },
);
