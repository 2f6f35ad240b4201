import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import {
  type Client,
  createClient,
  createRouterTransport,
  type HandlerContext,
  type Interceptor,
} from "@connectrpc/connect";
import { callerKey } from "@sandgate/kit/rpc/context";
import {
  ProcessService as HelperProcessService,
  type OutputEvent,
  type OutputEventSchema,
  OutputStream,
  ProcessState,
} from "@sandgate/proto/helper/v1/process";
import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { until } from "@sandgate/test-support/until";
import { expect, test } from "vitest";
import { createKnownProcesses } from "../operations/known-processes.ts";
import type { SandboxHelper, SandboxHelpers } from "../operations/sandbox-helpers.ts";
import { createProcessHandlers, type ProcessHandlersContext } from "./processes.ts";

type Event = MessageInitShape<typeof OutputEventSchema>;

const { STDOUT, STDERR, TERMINAL } = OutputStream;
const mebibyte = 1024 * 1024;
const processId = "01900000-0000-7000-8000-0000000000bb";

const output = (stream: OutputStream, bytes: number): Event => ({
  event: { case: "output", value: { stream, data: new Uint8Array(bytes) } },
});
const many = (count: number, event: Event) => Array<Event>(count).fill(event);
const exitOf = (id: string): Event => ({
  event: {
    case: "exit",
    value: { id, state: ProcessState.EXITED, startedAt: timestampNow(), endedAt: timestampNow() },
  },
});

const asFacade: Interceptor = (next) => (request) => {
  request.contextValues.set(callerKey, { service: "facade" });
  return next(request);
};

/** A client of the handlers of a sandbox whose helper answers each call with these events and the process's exit. */
function openSandbox(events: readonly Event[]) {
  const of: { call?: AbortSignal; failure?: unknown } = {};
  async function* answer({ id }: { id: string }, { signal }: HandlerContext) {
    of.call = signal;
    for (const event of [...events, exitOf(id)]) yield { event };
  }
  const transport = createRouterTransport(({ service }) => {
    service(HelperProcessService, { readOutput: answer, run: answer });
  });
  const helpers: Pick<SandboxHelpers, "stream"> = {
    async *stream({ signal }, _sandbox, work) {
      const info = { instanceId: "first" };
      const audited: SandboxHelper["audited"] = (_use, done) => done();
      try {
        yield* work({ sandbox: { id: "one" }, info, transport, signal, audited } as SandboxHelper);
      } catch (error) {
        of.failure = error;
        throw error;
      }
    },
  };
  const handlers = createProcessHandlers({ helpers, known: createKnownProcesses() } as ProcessHandlersContext);
  const router = { interceptors: [asFacade] };
  const client = createClient(
    ProcessService,
    createRouterTransport(({ service }) => service(ProcessService, handlers), { router }),
  );
  return { client, of };
}

type Answer = AsyncIterable<{ event?: OutputEvent | undefined }>;

async function collect(answer: Answer) {
  const kinds: (string | undefined)[] = [];
  for await (const { event } of answer) kinds.push(event?.event.case);
  return kinds;
}

const limited = { sandbox: "one", command: { argv: ["x"] }, maxOutputBytes: mebibyte };
const page = { sandbox: "one", processId };

test.each<[what: string, ask: (client: Client<typeof ProcessService>) => Answer, most: Event[]]>([
  ["of a page", (client) => client.readOutput(page), [output(STDOUT, mebibyte / 2), output(STDERR, mebibyte / 2)]],
  ["of a command", (client) => client.runCommand(limited), [output(STDOUT, mebibyte), output(STDERR, mebibyte)]],
  ["of a command in a terminal", (client) => client.runCommand(limited), [output(TERMINAL, mebibyte)]],
])("output %s beyond what the helper was asked for is an upstream error", async (_what, ask, most) => {
  const within = openSandbox(most);
  expect(await collect(ask(within.client))).toEqual([...most.map(() => "output"), "exit"]);
  for (const { event } of most) {
    const stream = event?.case === "output" ? event.value.stream : undefined;
    const lying = openSandbox([...most, output(stream ?? STDOUT, 1)]);
    await expect(collect(ask(lying.client))).rejects.toThrow();
    expect(lying.of.failure).toMatchObject({ reason: "UPSTREAM_ERROR" });
    await until(() => expect(lying.of.call?.aborted).toBe(true));
  }
});

test("who follows a process gets all its output", async () => {
  const events = [...many(10_001, output(STDOUT, 1)), ...many(2, output(STDOUT, mebibyte))];
  const { client } = openSandbox(events);
  expect(await collect(client.readOutput({ ...page, follow: true }))).toHaveLength(events.length + 1);
});

test.each([
  ["of output", output(STDOUT, 1)],
  ["without output", output(STDOUT, 0)],
  ["that are nothing", {}],
])("a page ends after 10,000 events %s, and with it the call of the helper", async (_what, event) => {
  const { client, of } = openSandbox(many(10_001, event));
  expect(await collect(client.readOutput(page))).toHaveLength(10_000);
  await until(() => expect(of.call?.aborted).toBe(true));
});
