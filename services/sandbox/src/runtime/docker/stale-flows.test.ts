import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { openEngine } from "@sandgate/docker-engine/client";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect, vi } from "vitest";
import { createStaleFlows } from "./stale-flows.ts";

let server: Server;
afterEach(() => {
  vi.unstubAllEnvs();
  server?.close();
});

/** An engine with one network, on which a container has 198.18.0.3, and a conntrack that knows flows of these sources. */
async function open(folder: string, sources: readonly string[]) {
  const calls = join(folder, "calls");
  writeFileSync(calls, "");
  const flows = sources.map((source) => `udp      17 20 src=${source} dst=1.1.1.1 sport=9 dport=53 src=1.1.1.1 use=1`);
  const script = `#!/bin/sh
echo "$*" >> ${calls}
case $1 in -L) cat <<'END'
${flows.join("\n")}
END
;; *) echo "conntrack v1.4.7 (conntrack-tools): 0 flow entries have been deleted." >&2; exit 1;; esac`;
  writeFileSync(join(folder, "conntrack"), script);
  chmodSync(join(folder, "conntrack"), 0o755);
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
  const network = {
    IPAM: { Config: [{ Subnet: "198.18.0.0/24" }] },
    Containers: { c1: { IPv4Address: "198.18.0.3/24" } },
  };
  server = createServer((_request, response) => {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(network));
  });
  const socket = join(folder, "engine.sock");
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const logger = createLogger({ service: "sandbox", level: "silent" });
  const warn = vi.spyOn(logger, "warn");
  const flowsOf = createStaleFlows({ engine: openEngine(`docker://${socket}`), logger });
  return { staleFlows: flowsOf, warn, readCalls: () => readFileSync(calls, "utf8").trim().split("\n") };
}

test("ends the flows of addresses that neither a container nor the host has, and those of one that was free since", async ({
  folder,
}) => {
  // Interfaces of other tests come and go.
  const own = networkInterfaces().lo?.map(({ address }) => address) ?? [];
  const { staleFlows, warn, readCalls } = await open(folder, ["198.18.0.2", "198.18.0.2", "198.18.0.3", ...own]);
  const endFlowsOf = await staleFlows.endUnused("n1");
  const ended = ["-L --orig-src 198.18.0.0/24", "-D --orig-src 198.18.0.2"];
  expect(readCalls()).toEqual(ended);
  await endFlowsOf("198.18.0.2");
  expect(readCalls()).toEqual(ended);
  await endFlowsOf("198.18.0.3");
  expect(readCalls()).toEqual([...ended, "-D --orig-src 198.18.0.3"]);
  expect(warn).not.toHaveBeenCalled();
});

test("looks once for all that start at once, and ends those of as many addresses, the lowest", async ({ folder }) => {
  const sources = Array.from({ length: 20 }, (_, index) => `198.18.0.${120 - index}`);
  const { staleFlows, readCalls } = await open(folder, sources);
  const [first, , , last] = await Promise.all(Array.from({ length: 4 }, () => staleFlows.endUnused("n1")));
  const list = "-L --orig-src 198.18.0.0/24";
  const [one, ...three] = [101, 102, 103, 104].map((host) => `-D --orig-src 198.18.0.${host}`);
  expect(readCalls()).toEqual([list, one, list, ...three]);
  await first?.("198.18.0.101");
  await last?.("198.18.0.104");
  expect(readCalls()).toHaveLength(6);
  await last?.("198.18.0.105");
  expect(readCalls().at(-1)).toBe("-D --orig-src 198.18.0.105");
});

test("leaves the address alone that was made free for a container which is still being started", async ({ folder }) => {
  const { staleFlows, readCalls } = await open(folder, ["198.18.0.2", "198.18.0.4", "198.18.0.5"]);
  const endFlowsOfFirst = await staleFlows.endUnused("n1");
  const list = "-L --orig-src 198.18.0.0/24";
  await staleFlows.endUnused("n1");
  expect(readCalls()).toEqual([list, "-D --orig-src 198.18.0.2", list, "-D --orig-src 198.18.0.4"]);
  await endFlowsOfFirst("198.18.0.2");
  // It ended before anybody looked, and left some.
  const endFlowsOfNext = await staleFlows.endUnused("n1");
  expect(readCalls().at(-1)).toBe("-D --orig-src 198.18.0.2");
  // The start that it was made free for has failed.
  await endFlowsOfNext("198.18.0.4");
  expect(readCalls().at(-1)).toBe("-D --orig-src 198.18.0.4");
});

test("warns once where conntrack is missing", async ({ folder }) => {
  const { staleFlows, warn } = await open(folder, []);
  vi.stubEnv("PATH", "/nowhere");
  for (let i = 0; i < 2; i++) await (await staleFlows.endUnused("n1"))("198.18.0.2");
  expect(warn.mock.calls).toEqual([[{ reason: "conntrack is not installed" }, expect.stringContaining("conntrack")]]);
});
