import { setTimeout as delay } from "node:timers/promises";
import { Code, createClient } from "@connectrpc/connect";
import { FileService, type WriteFileRequest } from "@sandgate/proto/sandbox/v1/files";
import { expect, test } from "vitest";
import { createLocalTransport } from "./local-transport.ts";

type Handlers = Parameters<typeof createClient<typeof FileService>>[1];

/** A client of a service in this process. */
function open(handlers: object, options: Parameters<typeof createLocalTransport>[1] = {}) {
  const transport: Handlers = createLocalTransport((router) => router.service(FileService, handlers), options, 1024);
  return createClient(FileService, transport);
}

const bytes = Buffer.from("content");

async function* read(count: number, onEnd: () => void) {
  try {
    for (let sent = 0; sent < count; sent++) yield { part: { case: "data" as const, value: bytes } };
  } finally {
    onEnd();
  }
}

async function all<T>(messages: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const message of messages) found.push(message);
  return found;
}

test("bytes of a stream are passed without a copy, and its messages can't be changed", async () => {
  const got: WriteFileRequest[] = [];
  const files = open({
    async writeFile(requests: AsyncIterable<WriteFileRequest>) {
      for await (const request of requests) got.push(request);
      return { created: true };
    },
    readFile: () => read(1, () => {}),
  });
  expect((await files.writeFile(read(2, () => {}))).created).toBe(true);
  expect(got).toHaveLength(2);
  expect(got[0]?.part.value).toBe(bytes);
  expect(() => Object.assign(got[0] ?? {}, { part: undefined })).toThrow(TypeError);
  for await (const { part } of files.readFile({ sandbox: "s" })) expect(part.value).toBe(bytes);
});

test("a reader whose signal aborts, or whose time is up, waits for no handler", async () => {
  const signals: AbortSignal[] = [];
  const files = open({
    // biome-ignore lint/correctness/useYield: it never gets that far
    async *readFile(_request: unknown, { signal }: { signal: AbortSignal }) {
      signals.push(signal);
      await delay(3_600_000, undefined, { ref: false });
    },
  });
  const controller = new AbortController();
  const left = all(files.readFile({ sandbox: "s" }, { signal: controller.signal }));
  await expect.poll(() => signals.length).toBe(1);
  controller.abort();
  await expect(left).rejects.toMatchObject({ code: Code.Canceled });
  const late = all(files.readFile({ sandbox: "s" }, { timeoutMs: 10 }));
  await expect(late).rejects.toMatchObject({ code: Code.DeadlineExceeded });
  expect(signals.map(({ aborted }) => aborted)).toEqual([true, true]);
});

test("gate, limits and interceptors hold for streams", async () => {
  const seen: string[] = [];
  const files = open(
    { readFile: () => read(1, () => {}) },
    {
      readMaxBytes: 100,
      maxTimeoutMs: 1_000,
      requestGate: async () => void seen.push("gate"),
      interceptors: [
        (next) => async (request) => {
          seen.push(request.stream ? "stream" : "unary");
          return next(request);
        },
      ],
    },
  );
  expect(await all(files.readFile({ sandbox: "s" }))).toHaveLength(1);
  expect(seen).toEqual(["gate", "stream"]);
  const large = all(files.readFile({ sandbox: "s", path: Buffer.alloc(101) }));
  await expect(large).rejects.toMatchObject({ code: Code.ResourceExhausted });
  const long = all(files.readFile({ sandbox: "s" }, { timeoutMs: 1_001 }));
  await expect(long).rejects.toMatchObject({ code: Code.InvalidArgument });
});
