// Clients, the command line and programs written for E2B, on two replicas of each process: every request is answered by
// another facade than the one before.
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { describeFiles } from "../conformance/suite.ts";
import { settingsOfPrograms } from "../e2b/program.ts";
import { openBalancer } from "../platform/distributed/balancer.ts";
import { requireDistributed, startDistributed } from "../platform/distributed/platform.ts";
import { testOn } from "../platform/given.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

const isAvailable = (await requireDistributed()) && (await requireServer("docker", probeEngine));

/** Leaves no sandbox of one file to the next. */
async function clear({ get, delete: remove, as }: Operator): Promise<void> {
  const live = async (): Promise<{ id: string }[]> =>
    expectStatus(await get("/sandboxes?state=provisioning,ready,stopping&limit=100", as), 200).sandboxes;
  for (const { id } of await live()) expectStatus(await remove(`/sandboxes/${id}`, as), 204);
  await until(async () => expect(await live()).toEqual([]));
}

describe.runIf(isAvailable)("on several replicas", () => {
  const running = new AsyncDisposableStack();

  beforeAll(async () => {
    const balancer = running.use(await openBalancer());
    const settings = {
      ...settingsOfPrograms,
      SANDGATE_PUBLIC_URL: balancer.url,
      // The names below localhost lead to the port of the facade that is asked.
      SANDGATE_PREVIEW_DOMAIN: "previews.test",
    };
    const platform = running.adopt(await startDistributed({ settings }), (each) => each.stop());
    balancer.replicas = platform.urls;
    const { url } = balancer;
    const operator = await openOperator({ ...platform, url });
    testOn({ ...platform, url, stop: () => clear(operator) });
  });
  afterAll(() => running.disposeAsync());

  describeFiles([
    ["the TypeScript client", () => import("../clients/typescript.test.ts")],
    ["the Python client", () => import("../clients/python.test.ts")],
    ["the command line", () => import("../clients/cli.test.ts")],
    ["the MCP server", () => import("../clients/mcp.test.ts")],
    ["E2B's SDKs", () => import("../e2b/sdk.test.ts")],
    // Leaves the operator with a second factor.
    ["the command line in a terminal", () => import("../clients/cli-terminal.test.ts")],
  ]);
});
