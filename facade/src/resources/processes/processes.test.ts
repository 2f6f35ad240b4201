import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { callOf } from "@sandgate/kit/rpc/context";
import { type OutputEventSchema, OutputStream, ProcessState } from "@sandgate/proto/helper/v1/process";
import type { RunCommandRequest, StartProcessRequest } from "@sandgate/proto/sandbox/v1/processes";
import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, expect, test } from "vitest";
import { apiToken, at, openTestPlatform, type TestPlatform, workspaceId } from "../../test-platform.ts";

type Event = MessageInitShape<typeof OutputEventSchema>;

const id = "01900000-0000-7000-8000-0000000000bb";
const running = {
  id,
  pid: 7,
  argv: ["cat"],
  cwd: "/",
  state: ProcessState.RUNNING,
  startedAt: at,
  terminal: undefined,
};
const ended = { ...running, state: ProcessState.EXITED, exitCode: 0, endedAt: at };
const output = (
  offset: number,
  data: string | number[] | Buffer,
  stream: OutputStream = OutputStream.STDOUT,
): Event => ({
  offset: BigInt(offset),
  event: { case: "output", value: { stream, data: Buffer.from(data as string) } },
});
const start: Event = { event: { case: "start", value: running } };
const exit = (offset: number): Event => ({ offset: BigInt(offset), event: { case: "exit", value: ended } });

let platform: TestPlatform;
let url: string;
let asked: {
  run?: RunCommandRequest;
  start?: StartProcessRequest;
  timeoutMs?: number | undefined;
  key?: string | undefined;
};
/** What the next command does; it is given the call's signal. */
let run: (signal: AbortSignal) => AsyncIterable<Event>;
let left: boolean;

beforeEach(async () => {
  asked = {};
  left = false;
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "10000" },
    handlers: {
      processes: {
        async *runCommand(request, context) {
          asked.run = request;
          asked.timeoutMs = callOf(context).timeoutMs();
          asked.key = callOf(context).idempotencyKey;
          context.signal.addEventListener("abort", () => {
            left = true;
          });
          for await (const event of run(context.signal)) yield { event };
        },
        startProcess(request) {
          asked.start = request;
          if (request.command?.cwd === "/none") throw invalid("command.cwd", "is no folder");
          if (request.command?.argv[0] === "long") throw invalid("command.argv[3]", "is too long");
          return { process: running };
        },
        getProcess: () => ({ process: { ...ended, pid: 0, exitCode: 137, signal: 9, shell: "x", argv: [] } }),
        waitProcess: () => ({ process: { ...running, terminal: { cols: 80, rows: 24 } } }),
        signalProcess: () => ({}),
      },
    },
  });
  url = await platform.listen();
});
afterEach(() => platform.close());

const headers = {
  authorization: `Bearer ${apiToken}`,
  "x-workspace-id": workspaceId,
  "content-type": "application/json",
};
const post = (path: string, body: object | undefined, more: Record<string, string> = {}, signal?: AbortSignal) =>
  fetch(`${url}/sandboxes/box/${path}`, {
    method: "POST",
    headers: { ...headers, ...more },
    ...(body && { body: JSON.stringify(body) }),
    ...(signal && { signal }),
  });
const exec = (body: object, more: Record<string, string> = {}) => post("exec", body, more);
const events = { accept: "text/event-stream" };
const fieldsOf = async (response: Response) =>
  ((await response.json()) as { error: { details: { field: string }[] } }).error.details.map(({ field }) => field);

function does(...all: Event[]): void {
  run = async function* () {
    yield* all;
  };
}

test("a command is passed on with its defaults, and its result has both streams apart", async () => {
  does(start, output(2, "a\n"), output(4, "b\n", OutputStream.STDERR), output(6, "c\n"), exit(6));
  const answer = await exec(
    { command: "cat; true", env: { A: "b" }, stdin: "aGk=", encoding: "base64" },
    { "idempotency-key": "k" },
  );
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({
    id,
    pid: 7,
    command: ["cat"],
    state: "exited",
    exit_code: 0,
    signal: null,
    pty: null,
    user: null,
    stdout: Buffer.from("a\nc\n").toString("base64"),
    stderr: Buffer.from("b\n").toString("base64"),
    stdout_truncated: false,
    encoding: "base64",
  });
  expect(asked.run).toMatchObject({
    sandbox: "box",
    command: { argv: [], shell: "cat; true", env: { A: "b" }, timeoutSeconds: 60, stdinOpen: false },
    continueOnDisconnect: false,
    maxOutputBytes: 1024 * 1024,
  });
  expect(Buffer.from(asked.run?.command?.stdin ?? "").toString()).toBe("hi");
  expect(asked.key).toBe("k");
  expect(asked.timeoutMs).toBeGreaterThan(60_000);
  expect(platform.logLines.join()).not.toContain("cat; true");
});

test("a character that comes in parts is whole, and a bad byte is U+FFFD", async () => {
  does(start, output(1, [0xc3]), output(2, [0xff], OutputStream.STDERR), output(3, [0xa9]), exit(3));
  expect(await (await exec({ command: ["x"] })).json()).toMatchObject({ stdout: "é", stderr: "\u{fffd}" });
  const stream = await (await exec({ command: ["x"] }, events)).text();
  expect(stream).toContain('id: 3\nevent: output\ndata: {"stream":"stdout","data":"é","encoding":"utf8"}');
});

test("events are sent as they come, and have all output and as long a time as a day", async () => {
  const gate = Promise.withResolvers<void>();
  run = async function* () {
    yield* [start, output(5, "first")];
    await gate.promise;
    yield* [{ offset: 9n, event: { case: "gapBytes", value: 4n } } as Event, exit(9)];
  };
  const answer = await exec({ command: ["x"], timeout_seconds: 86_400, on_disconnect: "continue" }, events);
  expect(answer.headers.get("content-type")).toContain("text/event-stream");
  let text = "";
  for await (const chunk of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    text += chunk;
    if (text.includes("first")) gate.resolve();
  }
  const blocks = text.split("\n\n").filter((block) => block.startsWith("id"));
  expect(blocks.map((block) => block.split("\n").slice(0, 2).join())).toEqual([
    "id: 0,event: start",
    "id: 5,event: output",
    "id: 9,event: gap",
    "id: 9,event: exit",
  ]);
  expect(asked.run).toMatchObject({ maxOutputBytes: 0, continueOnDisconnect: true });
  expect(asked.timeoutMs).toBeUndefined();
});

function refuse(): Event[] {
  throw invalid("command.user", "the sandbox has no such user");
}

/** A command that prints so many MiB of a byte, and ends after that. */
function prints(count: number, { byte = "x", after = Promise.resolve() } = {}) {
  const part = Buffer.alloc(1024 * 1024, byte);
  return async function* () {
    yield start;
    for (let i = 1; i <= count; i++) yield output(i * part.length, part);
    await after;
    yield exit(count * part.length);
  };
}

async function expectTooMuch(answer: Response): Promise<void> {
  expect([answer.status, Number(answer.headers.get("retry-after")) > 0]).toEqual([429, true]);
  expect(await answer.json()).toMatchObject({
    error: { code: "rate_limited", hint: expect.stringContaining("text/event-stream") },
  });
}

test("answers that hold too much output together are refused, before they run where that is known", async () => {
  const gate = Promise.withResolvers<void>();
  const mebibyte = 1024 * 1024;
  let hasRun = false;
  const all = prints(62, { after: gate.promise });
  run = () => {
    hasRun = true;
    return all();
  };
  const held = exec({ command: ["held"] });
  await until(() => expect(hasRun).toBe(true));
  run = prints(3);
  await until(async () => expectTooMuch(await exec({ command: ["over"] })));
  run = prints(1);
  expect((await exec({ command: ["within"] })).status).toBe(200);
  // As a stream it is not held.
  run = prints(70);
  expect((await (await exec({ command: ["streamed"] }, events)).text()).length).toBeGreaterThan(70 * mebibyte);
  gate.resolve();
  expect(((await (await held).json()) as { stdout: string }).stdout).toHaveLength(62 * mebibyte);
});

test.each<[what: string, byte: string, encoding: "utf8" | "base64", most: number]>([
  ["as it is", "x", "utf8", 64],
  ["escaped, where a byte is six", "\0", "utf8", 10],
  ["as base64, where three bytes are four", "x", "base64", 47],
])("output counts by its bytes in the answer: %s", async (_, byte, encoding, most) => {
  run = prints(most + 2, { byte });
  await expectTooMuch(await exec({ command: ["over"], encoding }));
  run = prints(most, { byte });
  await until(async () => expect((await exec({ command: ["within"], encoding })).status).toBe(200));
});

test("no event of the output is kept, which would take far more memory than a small one's bytes", async () => {
  const reused = Buffer.alloc(1);
  run = async function* () {
    yield start;
    for (const [index, byte] of [...Buffer.from("abcd")].entries()) {
      reused[0] = byte;
      yield {
        offset: BigInt(index + 1),
        event: {
          case: "output",
          value: { stream: index < 2 ? OutputStream.STDOUT : OutputStream.STDERR, data: reused },
        },
      };
    }
    yield exit(4);
  };
  expect(await (await exec({ command: ["x"] })).json()).toMatchObject({ stdout: "ab", stderr: "cd" });
});

test("what refuses a command before it starts is answered as everywhere, however long that takes", async () => {
  for (const more of [{}, events]) {
    run = async function* () {
      await delay(400);
      yield* refuse();
    };
    const answer = await exec({ command: ["x"], user: "nobody" }, more);
    expect(answer.status).toBe(422);
    expect(await fieldsOf(answer)).toEqual(["body.user"]);
  }
});

test.each<[field: string, body: object]>([
  ["body.command", {}],
  ["body.command", { command: [] }],
  ["body.command", { command: "" }],
  ["body.command", { command: [""] }],
  ["body.command.1", { command: ["x", "a\0"] }],
  ["body.command", { command: { a: 1 } }],
  ["body.env", { command: "x", env: { "A=B": "c" } }],
  ["body.env.A", { command: "x", env: { A: "\0" } }],
  ["body.cwd", { command: "x", cwd: "/\0" }],
  ["body.stdin", { command: "x", stdin: "a=b", encoding: "base64" }],
  ["body.stdin", { command: "x", stdin: "x".repeat(512 * 1024 + 1) }],
  ["body.timeout_seconds", { command: "x", timeout_seconds: 241 }],
  ["body.max_output_bytes", { command: "x", max_output_bytes: 16 * 1024 * 1024 + 1 }],
  ["body.pty", { command: "x", pty: { cols: 80, rows: 24 } }],
  ["body.stdin_open", { command: "x", stdin_open: true }],
])("%s is refused in %j", async (field, body) => {
  const answer = await exec(body);
  expect(answer.status).toBe(422);
  expect(await fieldsOf(answer)).toEqual([field]);
});

test("the service's refusals name the fields of the body", async () => {
  expect(await fieldsOf(await post("processes", { command: "x", cwd: "/none" }))).toEqual(["body.cwd"]);
  expect(await fieldsOf(await post("processes", { command: ["long"] }))).toEqual(["body.command"]);
});

test("a stream whose sandbox ends says so, and one whose caller has lost access too", async () => {
  run = async function* () {
    yield start;
    throw new DomainError("CONFLICT", "The sandbox is stopping (stopped_by_user).");
  };
  expect(await (await exec({ command: "x" }, events)).text()).toMatch(
    /event: end\ndata: {"reason":"sandbox_stopped"}\n\n$/,
  );
  run = async function* (signal) {
    yield start;
    await once(signal, "abort");
  };
  const answer = await exec({ command: "x" }, events);
  platform.state.revokedTokens.add(apiToken);
  platform.bus.signal("identity.api_tokens.revoked", "");
  expect(await answer.text()).toMatch(/event: end\ndata: {"reason":"invalid_token"}\n\n$/);
  await until(() => expect(left).toBe(true));
});

test("a client that leaves ends the call", async () => {
  const started = Promise.withResolvers<void>();
  run = async function* (signal) {
    yield start;
    started.resolve();
    await once(signal, "abort");
  };
  const client = new AbortController();
  const answer = post("exec", { command: "x" }, {}, client.signal);
  await started.promise;
  client.abort();
  await expect(answer).rejects.toThrow();
  await until(() => expect(left).toBe(true));
});

test("a process is started with a terminal, and shown with its signal's name", async () => {
  const started = await post("processes", { command: ["sh"], pty: { cols: 100, rows: 30 }, tag: "t" });
  expect(started.status).toBe(201);
  expect(asked.start?.command).toMatchObject({ argv: ["sh"], terminal: { cols: 100, rows: 30 }, timeoutSeconds: 0 });
  const read = await fetch(`${url}/sandboxes/box/processes/${id}`, { headers });
  expect(await read.json()).toMatchObject({ pid: null, command: "x", signal: "SIGKILL", exit_code: 137 });
});

test("a wait needs no body, and signals go by their names", async () => {
  const waited = await post(`processes/${id}/wait`, undefined);
  expect(await waited.json()).toMatchObject({ state: "running", pty: { cols: 80, rows: 24 }, exit_code: null });
  for (const signal of ["SIGTERM", "KILL", "SIGRTMIN+1"]) {
    expect((await post(`processes/${id}/signal`, { signal })).status).toBe(204);
  }
  for (const signal of ["", "SIGNAL", "sigterm", "15"]) {
    expect(await fieldsOf(await post(`processes/${id}/signal`, { signal }))).toEqual(["body.signal"]);
  }
});
