import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { containerLabels, containerNameOf } from "@sandgate/container-labels";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect } from "vitest";
import { openDockerContainerSource } from "./container-source.docker.ts";

let server: Server;

afterEach(() => {
  server.close();
});

test("the container of one sandbox is found without a list of all, and only in its own installation", async ({
  folder,
}) => {
  const socket = join(folder, "engine.sock");
  const owner = { sandboxId: "s1", workspaceId: "w1", installationId: "i1" };
  const asked: string[] = [];
  server = createServer((request, response) => {
    const path = request.url?.split("?")[0] ?? "";
    asked.push(path);
    const isThere = path === `/containers/${containerNameOf("s1")}/json`;
    response.writeHead(isThere ? 200 : 404, { "content-type": "application/json" });
    const container = { Id: "c1", Config: { Labels: containerLabels(owner) }, State: { Status: "exited" } };
    response.end(JSON.stringify(isThere ? container : { message: "No such container" }));
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const open = (installationId: string) =>
    openDockerContainerSource({
      address: `docker://${socket}`,
      installationId,
      logger: createLogger({ service: "telemetry", level: "silent" }),
      metrics: createMetrics(),
    });
  const { signal } = new AbortController();

  expect(await open("i1").list({ sandboxId: "s1", signal })).toEqual([{ id: "c1", sandboxId: "s1", state: "ended" }]);
  expect(await open("i1").list({ sandboxId: "s2", signal })).toEqual([]);
  expect(await open("i2").list({ sandboxId: "s1", signal })).toEqual([]);
  expect(asked).toEqual(["s1", "s2", "s1"].map((id) => `/containers/${containerNameOf(id)}/json`));
});
