import { once } from "node:events";
import { request } from "node:http";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { afterAll, beforeAll, expect, test } from "vitest";
import { apiToken, openTestPlatform, sandboxMessage, type TestPlatform, workspaceId } from "../../test-platform.ts";

let platform: TestPlatform;
let url: string;
let begun: PromiseWithResolvers<void>;
let ended: PromiseWithResolvers<void>;

async function workUntilLeft({ signal }: { signal: AbortSignal }): Promise<never> {
  begun.resolve();
  await once(signal, "abort");
  ended.resolve();
  throw signal.reason;
}

beforeAll(async () => {
  platform = await openTestPlatform({
    handlers: {
      sandbox: {
        getSandbox: () => ({ sandbox: sandboxMessage() }),
        waitSandboxes: (_, context) => workUntilLeft(context),
      },
      telemetry: {
        queryTelemetry: (_, context) => workUntilLeft(context),
        // biome-ignore lint/correctness/useYield: nothing comes
        async *tailTelemetry(_, context) {
          await workUntilLeft(context);
        },
      },
    },
    moreRoutes: [
      async (app, { live }) => {
        const rules = { rpc: SandboxService.method.getSandbox, audit: "sandbox.read" } as const;
        app.get("/broken", { config: { rules } }, (request, reply) =>
          live.run(request, reply, ({ signal }) =>
            workUntilLeft({ signal }).catch(() => {
              throw new TypeError("a mistake of ours");
            }),
          ),
        );
      },
    ],
  });
  url = await platform.listen();
});
afterAll(() => platform.close());

/** Sends a request, leaves once it is worked on, and returns the faults that are logged. */
async function leave(method: string, path: string, body?: object): Promise<unknown[]> {
  [begun, ended] = [Promise.withResolvers(), Promise.withResolvers()];
  platform.logLines.length = 0;
  const headers = {
    authorization: `Bearer ${apiToken}`,
    "x-workspace-id": workspaceId,
    ...(body && { "content-type": "application/json" }),
  };
  const sent = request(url + path, { method, headers, agent: false }).on("error", () => {});
  sent.end(body && JSON.stringify(body));
  await begun.promise;
  sent.destroy();
  await ended.promise;
  // By the time that another request is answered, that one has been, too.
  expect((await fetch(`${url}/healthz`)).status).toBe(200);
  return platform.logLines.map((line) => JSON.parse(line)).filter(({ level }) => level !== "info");
}

test.each([
  { what: "a wait", method: "POST", path: "/sandboxes/wait", body: { sandbox_id: "box" } },
  { what: "a read of logs", method: "GET", path: "/sandbox/monitoring/box", body: undefined },
  { what: "a stream before its first event", method: "GET", path: "/sandbox/monitoring/box/stream", body: undefined },
])("a client that leaves $what is no fault of the platform", async ({ method, path, body }) => {
  expect(await leave(method, path, body)).toEqual([]);
});

test("what fails for another reason is one, also when its client has left", async () => {
  expect(await leave("GET", "/broken")).toMatchObject([{ msg: "unexpected error", route: "/broken" }]);
});
