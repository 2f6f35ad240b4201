import { createServer } from "node:http";
import { join } from "node:path";
import { openEngine } from "@sandgate/docker-engine/client";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { expect, vi } from "vitest";
import { hostNamesOf } from "./names.ts";
import { createNetworks } from "./networks.ts";
import { parseSubnetRange } from "./subnets.ts";

test("one network that can't be removed keeps no other, and is tried again", async ({ folder, onTestFinished }) => {
  const socket = join(folder, "engine.sock");
  const listed = [0, 1, 2].map((number) => ({
    Name: `n${number}`,
    IPAM: { Config: [{ Subnet: `198.18.${number}.0/24` }] },
  }));
  const removals: string[] = [];
  const server = createServer(({ method, url = "" }, response) => {
    if (method === "DELETE") removals.push(url.split("/").at(-1) ?? "");
    response.writeHead(method === "GET" ? 200 : url.endsWith("n1") ? 500 : 204, { "content-type": "application/json" });
    response.end(method === "GET" ? JSON.stringify(listed) : undefined);
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  vi.useFakeTimers({ toFake: ["performance"] });
  onTestFinished(() => {
    vi.useRealTimers();
    server.close();
  });
  const networks = createNetworks({
    engine: openEngine(`docker://${socket}`),
    installationId: "i1",
    names: hostNamesOf("i1"),
    subnets: parseSubnetRange("198.18.0.0/16"),
    verifyBridge: async () => {},
    logger: createLogger({ service: "sandbox", level: "silent" }),
  });
  const updateAfter = async (seconds: number) => {
    vi.advanceTimersByTime(seconds * 1_000);
    await networks.update([]);
  };
  await updateAfter(61);
  await updateAfter(601);
  expect(removals).toEqual(["n0", "n1", "n2"]);
  listed.splice(0, 3, ...listed.slice(1, 2));
  await updateAfter(1);
  await updateAfter(601);
  expect(removals).toEqual(["n0", "n1", "n2", "n1"]);
});
