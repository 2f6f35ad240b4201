import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { openEngine } from "@sandgate/docker-engine/client";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { createDockerDisk } from "./disk.docker.ts";

const { signal } = new AbortController();
const limited = { StorageOpt: { size: "16m" } };

/** The disk of an engine that tells this of each container; one is limited by its storage. */
async function openDisk(folder: string, o: { changes: object[]; upperFolder: string }) {
  const inspected = {
    Id: "c1",
    State: { Running: true },
    GraphDriver: { Data: { UpperDir: o.upperFolder } },
    HostsPath: join(folder, "hosts"),
    HostnamePath: join(folder, "hostname"),
    ResolvConfPath: join(folder, "resolv.conf"),
  };
  const server = createServer(({ url = "" }, response) => {
    const { pathname, searchParams } = new URL(url, "http://localhost");
    const HostConfig = pathname.includes("limited") ? limited : {};
    const size = searchParams.get("size") === "true" && { SizeRw: 5_000 };
    const answer = pathname.endsWith("/changes") ? o.changes : { ...inspected, HostConfig, ...size };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  });
  const socket = join(folder, "engine.sock");
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const stop = () => void server.close();
  return { disk: createDockerDisk({ engine: openEngine(`docker://${socket}`) }), stop };
}

test("an engine whose disk can't be seen from here adds up lengths and lists files", async ({
  folder,
  onTestFinished,
}) => {
  const changes = Array.from({ length: 40_000 }, (_, index) => ({ Path: `/d/"Kind":${index}`, Kind: 1 }));
  const { disk, stop } = await openDisk(folder, { changes, upperFolder: join(folder, "none") });
  onTestFinished(stop);
  expect(await disk.measure("measured", signal)).toEqual({ bytes: 5_000, inodes: 40_000 });
  expect(await disk.measure("limited", signal)).toEqual({ inodes: 40_000 });
});

test("the files that the engine mounts into a container count, whatever its storage limits", async ({
  folder,
  onTestFinished,
}) => {
  const upperFolder = join(folder, "upper");
  await mkdir(upperFolder);
  const written = { "upper/big": 100_000, hosts: 300_000, hostname: 400_000, "resolv.conf": 500_000 };
  for (const [name, bytes] of Object.entries(written)) await writeFile(join(folder, name), Buffer.alloc(bytes, "x"));
  const { disk, stop } = await openDisk(folder, { changes: [], upperFolder });
  onTestFinished(stop);
  const measured = await disk.measure("measured", signal);
  expect(measured?.bytes).toBeGreaterThanOrEqual(1_300_000);
  const ofLimited = await disk.measure("limited", signal);
  expect(ofLimited?.bytes).toBeGreaterThanOrEqual(1_200_000);
  expect(ofLimited?.bytes).toBeLessThan(1_300_000);
});
