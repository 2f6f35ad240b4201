import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { openFacade, readFacadeSettings } from "@sandgate/facade";
import { identityService } from "@sandgate/identity";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { startServiceHost } from "@sandgate/kit/process/host";
import type { ServiceDefinition } from "@sandgate/kit/process/service";
import { createRemoteTransport } from "@sandgate/kit/rpc/clients";
import { createInternalKeys, createTokenVerifier } from "@sandgate/kit/rpc/internal-auth";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { findFreePort } from "@sandgate/test-support/process";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { workspaceService } from "@sandgate/workspace";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Client, createClient, expectStatus } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { expectFault, linesOf } from "./faults.ts";

/** A server that accepts connections and never answers. */
async function openSilentServer(): Promise<{ port: number; close(): void }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => sockets.add(socket.on("error", () => {})));
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    port: (server.address() as AddressInfo).port,
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

describe("upstream_error, when a registry fails", () => {
  let platform: TestPlatform;
  let operator: Operator;
  let silent: Awaited<ReturnType<typeof openSilentServer>>;
  let closedPort: number;

  beforeAll(async () => {
    silent = await openSilentServer();
    closedPort = await findFreePort();
    platform = await startPlatform({
      settings: { SANDGATE_REGISTRY_ALLOW: `127.0.0.1:${silent.port},127.0.0.1:${closedPort}` },
    });
    operator = await openOperator(platform);
  });
  afterAll(async () => {
    await platform?.stop();
    silent?.close();
  });

  const add = (port: number) =>
    operator.post(
      "/registries",
      { name: `r${port}`, url: `127.0.0.1:${port}`, username: "alice", password: "wonderland" },
      operator.as,
    );

  test("one that can't be reached", async () => {
    const answer = await add(closedPort);
    expectFault(answer, "upstream_error", `127.0.0.1:${closedPort}`);
    expect(answer.text).not.toContain("wonderland");
    await expect
      .poll(() => linesOf(platform.process.output(), answer.body.error.request_id))
      .toContainEqual(
        expect.objectContaining({
          level: "warn",
          service: "image-registry",
          err: expect.objectContaining({ stack: expect.stringContaining("ECONNREFUSED") }),
        }),
      );
    expect(platform.process.output()).not.toContain("wonderland");
  });

  test("one that accepts the connection and doesn't answer", async () => {
    expectFault(await add(silent.port), "upstream_error", `127.0.0.1:${silent.port}`);
    expectStatus(await operator.get("/registries", operator.as), 200);
  });
});

describe("upstream_error, when a service fails behind the facade", () => {
  const password = "correct horse battery";
  const logLines: string[] = [];
  const logger = createLogger({ service: "test" }, { write: (line: string) => void logLines.push(line) });
  let closing: AsyncDisposableStack;
  let client: Client;
  let as: { token: string; workspace: string };
  let stopWorkspace: () => Promise<void>;
  let startWorkspace: () => Promise<void>;

  beforeAll(async () => {
    closing = new AsyncDisposableStack();
    const { path: folder, remove: removeFolder } = await createTempFolder();
    closing.defer(removeFolder);
    const silent = closing.adopt(await openSilentServer(), (each) => each.close());
    const keys = await createInternalKeys(["facade", ...serviceNames]);
    const metrics = createMetrics();
    const bus = closing.adopt(await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics }), (each) =>
      each.close(),
    );
    const keyring = await openKeyring({ file: join(folder, "keys.json"), create: true });
    const ports: Record<ServiceName, number> = {
      identity: await findFreePort(),
      workspace: await findFreePort(),
      "image-registry": await findFreePort(),
      sandbox: silent.port,
      telemetry: silent.port,
    };
    const transport = (caller: string) => (audience: ServiceName) =>
      createRemoteTransport({ url: `http://127.0.0.1:${ports[audience]}`, signer: keys.signer(caller), audience });
    const env = {
      SANDGATE_ADMIN_USERNAME: "admin@localhost",
      SANDGATE_ADMIN_PASSWORD: password,
      SANDGATE_DATA: folder,
    };

    /** A service in its own server, on its own port. */
    async function start<Settings>(definition: ServiceDefinition<Settings>): Promise<{ stop(): Promise<void> }> {
      const service = definition.name;
      const metrics = createMetrics();
      const database = { kind: "sqlite" as const, file: join(folder, `${service}.sqlite`) };
      const own = { database, bus, transport: transport(service), keyring, logger, metrics };
      const running = await definition.open(own, definition.readSettings(env));
      const host = await startServiceHost({
        service,
        verifier: createTokenVerifier({ audience: service, jwks: keys.jwks }),
        logger,
        metrics,
        routes: (router) => running.routes(router),
        host: "127.0.0.1",
        port: ports[service],
      });
      await running.start();
      return {
        async stop() {
          await Promise.all([host.close(), running.drain()]);
          await running.close();
        },
      };
    }

    closing.adopt(await start(identityService), (each) => each.stop());
    let workspace: { stop(): Promise<void> } | undefined;
    startWorkspace = async () => {
      workspace = await start(workspaceService);
    };
    stopWorkspace = async () => {
      await workspace?.stop();
      workspace = undefined;
    };
    await startWorkspace();
    closing.defer(() => stopWorkspace());
    const facade = closing.adopt(
      await openFacade(
        { transport: transport("facade"), bus, logger, metrics: createMetrics() },
        readFacadeSettings({ ...env, SANDGATE_HOST: "127.0.0.1", SANDGATE_PORT: String(await findFreePort()) }),
      ),
      (each) => each.close(),
    );
    client = createClient(await facade.listen());
    const signedIn = await client.post("/auth/login", { username: "admin@localhost", password });
    const token: string = expectStatus(signedIn, 200).tokens.access_token;
    const { workspaces } = expectStatus(await client.get("/workspaces", { token }), 200);
    as = { token, workspace: workspaces[0].id };
  });
  afterAll(() => closing?.disposeAsync());

  async function expectUnanswered(path: string): Promise<void> {
    const requestId = `fault-${randomUUID()}`;
    const answer = await client.get(path, { ...as, headers: { "x-request-id": requestId } });
    expectFault(answer, "upstream_error");
    expect(answer.body.error.request_id).toBe(requestId);
    await expect
      .poll(() => linesOf(logLines.join(""), requestId))
      .toContainEqual(
        expect.objectContaining({ level: "warn", err: expect.objectContaining({ stack: expect.any(String) }) }),
      );
  }

  test("one that can't be reached", () => expectUnanswered("/sandbox-images"));

  test("one that doesn't answer before the deadline", () => expectUnanswered("/sandboxes"));

  test("one that was stopped, until it is back", async () => {
    await stopWorkspace();
    await expectUnanswered("/workspaces");
    await startWorkspace();
    await expect.poll(async () => (await client.get("/workspaces", as)).status).toBe(200);
  });
});
