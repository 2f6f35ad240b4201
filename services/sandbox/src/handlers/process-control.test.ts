import { createClient, createRouterTransport } from "@connectrpc/connect";
import { ProcessService as HelperProcessService } from "@sandgate/proto/helper/v1/process";
import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { expect, test } from "vitest";
import { createProcessCalls } from "../operations/process-calls.ts";
import { createProcessUses } from "../operations/process-uses.ts";
import type { SandboxHelper, SandboxHelpers } from "../operations/sandbox-helpers.ts";
import { createProcessControlHandlers } from "./process-control.ts";

test.each([
  ["is passed on", { offset: 9n, closed: false, taken: 0n }],
  ["stays unknown where an older helper doesn't tell it", { offset: 9n, closed: true }],
])("what was taken of a write %s", async (_what, answer) => {
  const transport = createRouterTransport(({ service }) => {
    service(HelperProcessService, { writeStdin: () => answer });
  });
  const helper = { sandbox: { id: "one" }, info: {}, transport } as SandboxHelper;
  const helpers = { call: (_context, _sandbox, work) => work(helper) } as SandboxHelpers;
  const calls = createProcessCalls(helpers, { findLost: () => [] } as never);
  const handlers = createProcessControlHandlers(calls, createProcessUses());
  const client = createClient(
    ProcessService,
    createRouterTransport(({ service }) => service(ProcessService, handlers)),
  );
  const { offset, closed, taken } = await client.writeStdin({ sandbox: "one" });
  expect({ offset, closed, taken }).toEqual(answer);
});
