import { createServer } from "node:http";
import { join } from "node:path";
import { openEngine } from "@sandgate/docker-engine/client";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { createDockerDisk } from "./disk.docker.ts";

const limited = { StorageOpt: { size: "16m" } };

test("an engine whose disk can't be seen from here adds up lengths and lists files", async ({
  folder,
  onTestFinished,
}) => {
  const changes = Array.from({ length: 40_000 }, (_, index) => ({ Path: `/d/"Kind":${index}`, Kind: 1 }));
  const inspected = { Id: "c1", State: { Running: true }, GraphDriver: { Data: { UpperDir: join(folder, "none") } } };
  const server = createServer(({ url = "" }, response) => {
    const { pathname, searchParams } = new URL(url, "http://localhost");
    const HostConfig = pathname.includes("limited") ? limited : {};
    const size = searchParams.get("size") === "true" && { SizeRw: 5_000 };
    const answer = pathname.endsWith("/changes") ? changes : { ...inspected, HostConfig, ...size };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  });
  const socket = join(folder, "engine.sock");
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  onTestFinished(() => {
    server.close();
  });
  const disk = createDockerDisk({ engine: openEngine(`docker://${socket}`) });
  const { signal } = new AbortController();
  expect(await disk.measure("measured", signal)).toEqual({ bytes: 5_000, inodes: 40_000 });
  expect(await disk.measure("limited", signal)).toEqual({ inodes: 40_000 });
});
