import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { promisify } from "node:util";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect } from "vitest";
import { callEngine, inspectImage, openEngine, openLogStream, ping, readInfo } from "./client.ts";

let server: Server;

afterEach(() => {
  server.close();
});

test("counts its calls by what they ask for, without ids and names", async ({ folder }) => {
  const socket = join(folder, "engine.sock");
  server = createServer((_, response) => response.writeHead(200, { "content-type": "application/json" }).end("{}"));
  await new Promise<void>((resolve) => server.listen(socket, resolve));

  const metrics = createMetrics();
  const engine = openEngine(`docker://${socket}`, metrics);
  const { signal } = new AbortController();
  await callEngine((abortSignal) => engine.listContainers({ abortSignal }));
  for (const id of ["a", "b"]) await callEngine((abortSignal) => engine.getContainer(id).inspect({ abortSignal }));
  await callEngine((abortSignal) => engine.getContainer("a").remove({ abortSignal }));
  await callEngine(() => engine.createNetwork({ Name: "n" }));
  await inspectImage(engine, "host/some/repository:1");
  await readInfo(engine);
  (await openLogStream(engine, "a", { tail: "1" }, signal)).resume();

  const counted = await metrics.getSingleMetric("sandgate_engine_calls_total")?.get();
  expect(Object.fromEntries(counted?.values.map(({ labels, value }) => [labels.call, value]) ?? [])).toEqual({
    "GET containers/json": 1,
    "GET containers/*/json": 2,
    "DELETE containers/*": 1,
    "POST networks/create": 1,
    "GET images/*/json": 1,
    "GET info": 1,
    "GET containers/*/logs": 1,
  });
});

test("what its caller gives up leaves no connection to an engine that hangs", async ({ folder }) => {
  const socket = join(folder, "engine.sock");
  server = createServer(() => undefined);
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const openConnections = () => promisify(server.getConnections.bind(server))();

  const engine = openEngine(`docker://${socket}`);
  const calls: ((limits: { signal: AbortSignal }) => Promise<unknown>)[] = [
    (limits) => ping(engine, limits),
    (limits) => readInfo(engine, limits),
    (limits) => inspectImage(engine, "host/some/repository:1", limits),
  ];
  for (const call of calls) {
    const caller = new AbortController();
    const outcome = call({ signal: caller.signal }).catch((error: unknown) => error);
    await expect.poll(openConnections).toBe(1);
    caller.abort(new Error("left"));
    expect(await outcome).toEqual(new Error("left"));
    await expect.poll(openConnections).toBe(0);
  }
});
