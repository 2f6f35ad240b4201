import { createServer, type ServerResponse } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { openEngine } from "@sandgate/docker-engine/client";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { createHelperVolume, type HelperVolume } from "./helper-volume.ts";

interface FakeEngine {
  helperVolume: HelperVolume;
  /** The labels of each volume, when it was created, and the images of the containers that filled it. */
  volumes: Map<string, { labels?: object; createdAt: string; filledBy: string[] }>;
  stop(): void;
}

interface HostConfig {
  Mounts: readonly { Source: string; Target: string }[];
}

/** An engine that has all images but those whose name says that they are gone. */
async function openFake(folder: string): Promise<FakeEngine> {
  const volumes: FakeEngine["volumes"] = new Map();
  const answer = (response: ServerResponse, status: number, body: object = {}) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  let image = "";
  let mounts: object[] = [];
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url ?? "", "http://localhost");
    const body = await text(request);
    const read = () => JSON.parse(body) as { Name: string; Image: string; Labels: object; HostConfig: HostConfig };
    if (pathname.endsWith("/info")) return answer(response, 200, { Architecture: "x86_64" });
    if (pathname.endsWith("/volumes")) return answer(response, 200, { Volumes: [] });
    if (pathname.endsWith("/volumes/create")) {
      const { Name: name, Labels: labels } = read();
      if (!volumes.has(name)) volumes.set(name, { labels, createdAt: "2026-01-01T00:00:00Z", filledBy: [] });
      return answer(response, 201, { Name: name });
    }
    if (pathname.includes("/volumes/")) {
      const volume = volumes.get(pathname.split("/").at(-1) ?? "");
      if (!volume) return answer(response, 404);
      return answer(response, 200, { Labels: volume.labels ?? null, CreatedAt: volume.createdAt });
    }
    if (pathname.endsWith("/containers/create")) {
      image = read().Image;
      mounts = read().HostConfig.Mounts.map(({ Source, Target }) => ({ Name: Source, Destination: Target }));
      if (image.startsWith("gone")) return answer(response, 404, { message: `No such image: ${image}` });
      return answer(response, 201, { Id: "c1" });
    }
    if (pathname.includes("/containers/") && pathname.endsWith("/json"))
      return answer(response, 200, { Mounts: mounts });
    if (pathname.endsWith("/archive")) for (const { filledBy } of volumes.values()) filledBy.push(image);
    return answer(response, 200);
  });
  const socket = join(folder, "engine.sock");
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const engine = openEngine(`docker://${socket}`);
  return {
    helperVolume: createHelperVolume({ engine, installationId: "i1", prefix: "helper-" }),
    volumes,
    stop: () => void server.close(),
  };
}

test("a volume that was removed is filled again, also where the engine has made an empty one of its name", async ({
  folder,
  onTestFinished,
}) => {
  const { helperVolume, volumes, stop } = await openFake(folder);
  onTestFinished(stop);
  const name = await helperVolume.require("one");
  expect(await helperVolume.require("two")).toBe(name);
  expect(volumes.get(name)?.filledBy).toEqual(["one"]);
  volumes.clear();
  expect(await helperVolume.require("three")).toBe(name);
  expect(volumes.get(name)?.filledBy).toEqual(["three"]);
  // Before Docker 23 the time is that of the last fill, also by another process.
  Object.assign(volumes.get(name) ?? {}, { createdAt: "2026-01-01T12:00:00Z" });
  expect(await helperVolume.require("other")).toBe(name);
  expect(volumes.get(name)?.filledBy).toEqual(["three"]);
  volumes.set(name, { createdAt: "2026-01-02T00:00:00Z", filledBy: [] });
  await Promise.all(["four", "four", "four"].map(helperVolume.require));
  expect(volumes.get(name)?.filledBy).toEqual(["four"]);
});

test("an image that is gone keeps no sandbox of another image from the helper", async ({ folder, onTestFinished }) => {
  const { helperVolume, volumes, stop } = await openFake(folder);
  onTestFinished(stop);
  const [gone, alsoGone, there] = await Promise.allSettled(["gone", "gone too", "there"].map(helperVolume.require));
  expect([gone?.status, alsoGone?.status, there?.status]).toEqual(["rejected", "rejected", "fulfilled"]);
  expect([...volumes.values()].map(({ filledBy }) => filledBy)).toEqual([["there"]]);
});
