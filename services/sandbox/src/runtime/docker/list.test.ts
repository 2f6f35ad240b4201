import { createServer, type Server } from "node:http";
import { join } from "node:path";
import { containerLabels } from "@sandgate/container-labels";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect } from "vitest";
import { createDockerRuntime } from "./runtime.docker.ts";

let server: Server;
let asked: string[];

afterEach(() => {
  server.close();
});

/** An engine that lists these containers and fails at everything else. */
async function openEngine(folder: string, listed: readonly object[]): Promise<string> {
  const socket = join(folder, "engine.sock");
  asked = [];
  server = createServer((request, response) => {
    const path = request.url?.split("?")[0] ?? "";
    asked.push(path);
    const isList = path.endsWith("/containers/json");
    response.writeHead(isList ? 200 : 500, { "content-type": "application/json" });
    response.end(JSON.stringify(isList ? listed : { message: "driver failed" }));
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  return `docker://${socket}`;
}

const containerOf = (number: number, state: string) => ({
  Id: `container-${number}`,
  State: state,
  Created: 1_700_000_000 + number,
  Labels: containerLabels({ sandboxId: `s${number}`, workspaceId: "w1", installationId: "i1" }),
});

test("lists by one question, whatever state containers are in and whether they can be inspected", async ({
  folder,
}) => {
  const states = ["created", "running", "paused", "exited", "dead", "removing"];
  const url = await openEngine(
    folder,
    states.map((state, number) => containerOf(number, state)),
  );
  const logger = createLogger({ service: "sandbox", level: "silent" });
  const runtime = createDockerRuntime({ url, installationId: "i1", isolation: false, logger });
  const phases = ["created", "running", "running", "exited", "exited"];
  expect(await runtime.lifecycle.list()).toEqual(
    phases.map((phase, number) => ({
      sandboxId: `s${number}`,
      phase,
      createdAt: new Date((1_700_000_000 + number) * 1000),
    })),
  );
  expect(asked).toHaveLength(1);
});
