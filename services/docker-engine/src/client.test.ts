import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect } from "vitest";
import { callEngine, openEngine, openLogStream } from "./client.ts";

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
  await callEngine(() => engine.getImage("host/some/repository:1").inspect());
  await callEngine(() => engine.info());
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
