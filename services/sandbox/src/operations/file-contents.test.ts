import { createServer, connect as dial, type Socket } from "node:net";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { create } from "@bufbuild/protobuf";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { ReadResponseSchema, type WriteRequest } from "@sandgate/proto/helper/v1/file";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { createStallLimit } from "./bodies.ts";
import type { Files } from "./file-calls.ts";
import { type OpenData, readParts, toParts } from "./file-contents.ts";

const { signal } = new AbortController();
const chunk = Buffer.alloc(mebibyte / 4, "a part of a file ");
const path = Buffer.from("/file");

const dataTest = test.extend("data", async ({ folder }, { onCleanup }) => {
  const ends: Socket[] = [];
  const opened: Socket[] = [];
  const server = createServer((socket) => ends.push(socket.on("error", () => {})));
  const address = join(folder, "helper");
  await new Promise<void>((resolve) => server.listen(address, resolve));
  onCleanup(() => {
    for (const socket of [...ends, ...opened]) socket.destroy();
    server.close();
  });
  /** Opens connections of which `ends` are the helper's. */
  const open = async (_id: Uint8Array, within: AbortSignal) => {
    const socket = dial(address);
    socket.on("error", () => {});
    within.addEventListener("abort", () => socket.destroy());
    opened.push(socket);
    await expect.poll(() => ends.length).toBe(opened.length);
    return socket;
  };
  return { ends, open };
});

async function* content(chunks: number): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < chunks; i++) yield Buffer.from(chunk);
}

function write(chunks: AsyncIterable<Uint8Array>, openData: OpenData, ended = signal) {
  const stall = createStallLimit(signal, 60_000);
  return toParts({ path }, chunks, { stall, openData, ended });
}

dataTest("what is beyond the first MiB goes by a data connection, before the commit", async ({ data }) => {
  const cases: WriteRequest["part"]["case"][] = [];
  let received: Promise<Buffer> | undefined;
  for await (const { part } of write(content(40), data.open)) {
    cases.push(part.case);
    if (part.case === "dataConnection" && data.ends[0]) received = buffer(data.ends[0]);
  }
  expect(cases).toEqual(["start", "data", "data", "data", "data", "dataConnection", "commit"]);
  expect((await received)?.equals(Buffer.concat(Array.from({ length: 36 }, () => chunk)))).toBe(true);
});

dataTest.for([0, 3])("a small file needs none: %d parts", async (chunks, { data }) => {
  const cases = [];
  for await (const { part } of write(content(chunks), data.open)) cases.push(part.case);
  expect(cases).toEqual(["start", ...Array.from({ length: chunks }, () => "data"), "commit"]);
  expect(data.ends).toEqual([]);
});

test.each([undefined, async () => undefined])(
  "all goes by messages where no data connection can be had",
  async (openData) => {
    const cases = [];
    for await (const { part } of write(content(12), openData)) cases.push(part.case);
    expect(cases).toEqual(["start", ...Array.from({ length: 12 }, () => "data"), "commit"]);
  },
);

dataTest("nothing is committed of a content that the helper stopped taking", async ({ data }) => {
  const cases = [];
  for await (const { part } of write(content(400), data.open)) {
    cases.push(part.case);
    if (part.case === "dataConnection") data.ends[0]?.destroy();
  }
  expect(cases).not.toContain("commit");
});

dataTest("a helper that takes nothing holds nothing once its call has ended", async ({ data }) => {
  const ended = new AbortController();
  const parts = write(content(400), data.open, ended.signal);
  const all = (async () => {
    const cases = [];
    for await (const { part } of parts) cases.push(part.case);
    return cases;
  })();
  await expect.poll(() => data.ends.length).toBe(1);
  ended.abort();
  expect(await all).not.toContain("commit");
});

dataTest("a content that breaks off is no whole one", async ({ data }) => {
  const failure = new DomainError("VALIDATION_ERROR", "The client has left.");
  const broken = async function* () {
    yield* content(20);
    throw failure;
  };
  const read = async () => {
    for await (const { part } of write(broken(), data.open)) {
      expect(part.case).not.toBe("commit");
      data.ends[0]?.resume();
    }
  };
  await expect(read()).rejects.toBe(failure);
});

/** A helper that has files of this size. What it sends by a data connection goes by what `open` returns. */
function helperOf(size: number, data: { ends: Socket[]; open: NonNullable<OpenData> }) {
  const asked: boolean[] = [];
  const chunks = size / chunk.length;
  const client: Pick<Files, "read"> = {
    async *read({ dataConnection = Buffer.alloc(0) }) {
      const byDataConnection = dataConnection.length > 0;
      asked.push(byDataConnection);
      yield create(ReadResponseSchema, { part: { case: "start", value: { length: BigInt(size), byDataConnection } } });
      if (byDataConnection) return;
      for (let sent = 0; sent < chunks; sent++) {
        yield create(ReadResponseSchema, { part: { case: "data", value: chunk } });
      }
    },
  };
  const openData = async (id: Uint8Array, within: AbortSignal) => {
    const socket = await data.open(id, within);
    for (let sent = 0; sent < chunks; sent++) data.ends[0]?.write(chunk);
    data.ends[0]?.end();
    return socket;
  };
  return { asked, client, openData };
}

dataTest.for([true, false])("a file is read whole, with a data connection: %s", async (canOpen, { data }) => {
  const size = 20 * chunk.length;
  const { asked, client, openData: open } = helperOf(size, data);
  const openData = canOpen ? open : async () => undefined;
  const parts: Uint8Array[] = [];
  let starts = 0;
  for await (const part of readParts(client, { path }, { signal, openData })) {
    if (part.case === "start") starts++;
    if (part.case === "data") parts.push(part.value);
  }
  expect(starts).toBe(1);
  expect(Buffer.concat(parts).equals(Buffer.alloc(size, chunk))).toBe(true);
  expect(asked).toEqual(canOpen ? [true] : [true, false]);
});

dataTest("a reader that leaves ends the data connection", async ({ data }) => {
  const { client, openData } = helperOf(400 * chunk.length, data);
  for await (const part of readParts(client, { path }, { signal, openData })) {
    if (part.case === "data") break;
  }
  await expect.poll(() => data.ends[0]?.destroyed).toBe(true);
});
