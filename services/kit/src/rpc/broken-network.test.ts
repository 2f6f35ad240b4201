import { createClient } from "@connectrpc/connect";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { openFaultProxy } from "@sandgate/test-support/fault-proxy";
import { findFreePort } from "@sandgate/test-support/process";
import { expect, test } from "vitest";
import { createLogger } from "../base/logging.ts";
import { createMetrics } from "../base/metrics.ts";
import { startServiceHost } from "../process/host.ts";
import { createRemoteTransport } from "./clients.ts";
import { asFacade, type UserCaller } from "./context.ts";
import { createInternalKeys, createTokenVerifier } from "./internal-auth.ts";

const user: UserCaller = { id: "u", credential: "session", credentialId: "s", operator: false };
const address = "127.0.0.1";

test.each(["down", "reset", "silent"] as const)(
  "a call that the network cuts off (%s) is an upstream error before its deadline",
  async (mode) => {
    const keys = await createInternalKeys(["facade"]);
    const started = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    const host = await startServiceHost({
      service: "workspace",
      verifier: createTokenVerifier({ audience: "workspace", jwks: keys.jwks }),
      logger: createLogger({ service: "test", level: "silent" }),
      metrics: createMetrics(),
      host: address,
      port: 0,
      routes(router) {
        router.service(WorkspaceService, {
          async createWorkspace({ name }) {
            started.resolve();
            await go.promise;
            return { workspace: { name } };
          },
        });
      },
    });
    const port = await findFreePort();
    const proxy = await openFaultProxy({
      listen: { host: address, port },
      to: { host: address, port: Number(new URL(host.url).port) },
    });
    const url = `http://${address}:${port}`;
    const transport = createRemoteTransport({ url, signer: keys.signer("facade"), audience: "workspace" });
    const client = createClient(WorkspaceService, transport);
    const create = () => client.createWorkspace({ name: "n" }, asFacade({ requestId: "r", user, timeoutMs: 60_000 }));

    const running = create();
    await Promise.race([started.promise, running]);
    await proxy.set(mode);
    await expect(running).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
    go.resolve();
    await proxy.set("open");
    expect((await create()).workspace?.name).toBe("n");
    await proxy.close();
    await host.close();
  },
);
