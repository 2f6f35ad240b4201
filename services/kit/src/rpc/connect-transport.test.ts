import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { connectNodeAdapter, Http2SessionManager } from "@connectrpc/connect-node";
import { FileService, type WriteRequest, WriteRequestSchema } from "@sandgate/proto/helper/v1/file";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { createConnectTransport } from "./connect-transport.ts";

type Sent = MessageInitShape<typeof WriteRequestSchema>;

const received: WriteRequest[] = [];
let fails = false;

const server = createServer(
  connectNodeAdapter({
    routes: ({ service }) =>
      service(FileService, {
        async write(requests) {
          for await (const request of requests) {
            if (fails) throw new ConnectError("no space left", Code.ResourceExhausted);
            received.push(request);
          }
          return { created: true };
        },
      }),
  }),
);
let sessions: Http2SessionManager;
const connect = () => createClient(FileService, createConnectTransport(target));
let target: Parameters<typeof createConnectTransport>[0];

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  sessions = new Http2SessionManager(baseUrl);
  target = { baseUrl, sessionManager: sessions, readMaxBytes: 1024 };
});
beforeEach(() => {
  received.length = 0;
  fails = false;
});
afterAll(() => {
  sessions.abort();
  server.close();
});

async function* send(messages: readonly Sent[]) {
  yield* messages;
}

const data = (value: Uint8Array): Sent => ({ part: { case: "data", value } });
const filled = (length: number) => new Uint8Array(length).map((_, index) => index % 251);

test("what a client streams arrives as it was sent, bytes of any length and what isn't bytes", async () => {
  // Around each length whose own encoding is a byte longer, of one buffer and of a part of it.
  const lengths = [0, 1, 127, 128, 16_383, 16_384, 70_000, 2_097_152];
  const messages: Sent[] = [
    { part: { case: "start", value: { path: filled(3), mode: 0o600, maxBytes: 5n } } },
    ...lengths.map((length) => data(filled(length))),
    data(filled(100).subarray(10, 20)),
    {},
    { part: { case: "commit", value: true } },
  ];
  expect(await connect().write(send(messages))).toMatchObject({ created: true });
  expect(received).toEqual(messages.map((message) => create(WriteRequestSchema, message)));
});

test("fields that the contract doesn't have are passed on", async () => {
  const message = create(WriteRequestSchema, data(filled(3)));
  message.$unknown = [{ no: 99, wireType: 0, data: Uint8Array.of(1) }];
  await connect().write(send([message]));
  expect(received).toEqual([message]);
});

test("a call fails with what its messages fail with, and with what the service answers", async () => {
  const broken = async function* () {
    yield data(filled(70_000));
    throw new ConnectError("cut off", Code.DataLoss);
  };
  await expect(connect().write(broken())).rejects.toMatchObject({ code: Code.DataLoss, rawMessage: "cut off" });
  fails = true;
  const left: number[] = [];
  const endless = async function* () {
    try {
      for (;;) yield data(filled(70_000));
    } finally {
      left.push(1);
    }
  };
  const failed = connect().write(endless());
  await expect(failed).rejects.toMatchObject({ code: Code.ResourceExhausted, rawMessage: "no space left" });
  await expect.poll(() => left).toEqual([1]);
});
