import { once } from "node:events";
import type { Socket } from "node:net";
import { ProcessState } from "@sandgate/proto/helper/v1/process";
import { until } from "@sandgate/test-support/until";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  apiToken,
  at,
  frameOf as dataFrame,
  openTestPlatform,
  openWebSocket,
  type TestPlatform,
} from "../../test-platform.ts";

const id = "01900000-0000-7000-8000-0000000000bb";
const process = { id, pid: 7, argv: ["cat"], cwd: "/", state: ProcessState.RUNNING, startedAt: at };

let platform: TestPlatform;
let socket: Socket;
/** What the process has read, and what has been done with it. */
let input: Buffer;
let done: string[];
/** Calls in progress, and the most of them so far. */
let open: number;
let mostOpen: number;
let writes: number;
/** Bytes that a write takes at most, and what another client writes at the same moment. */
let most: number;
let others: string;
/** Whether the call that reads the output has ended. */
let left: boolean;
/** Calls are answered once this has settled. */
let gate: { promise: Promise<void>; resolve: () => void };

beforeEach(async () => {
  input = Buffer.alloc(0);
  done = [];
  left = false;
  [open, mostOpen, writes] = [0, 0, 0];
  [most, others] = [Infinity, ""];
  gate = Promise.withResolvers();
  const answer = async <T>(signal: AbortSignal, result: () => T): Promise<T> => {
    mostOpen = Math.max(mostOpen, ++open);
    await Promise.race([gate.promise, once(signal, "abort")]);
    open -= 1;
    signal.throwIfAborted();
    return result();
  };
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "10000" },
    handlers: {
      processes: {
        getProcess: () => ({ process }),
        async *readOutput(_request, { signal }) {
          yield { event: { event: { case: "start", value: process } } };
          await once(signal, "abort");
          left = true;
        },
        writeStdin: ({ data, eof }, { signal }) =>
          answer(signal, () => {
            writes += 1;
            const taken = data.subarray(0, most);
            input = Buffer.concat([input, taken, Buffer.from(others)]);
            if (eof && taken.length === data.length) done.push(`eof ${input.length}`);
            return {
              offset: BigInt(input.length),
              closed: false,
              ...(others !== "" && { taken: BigInt(taken.length) }),
            };
          }),
        resizeTerminal: ({ terminal }, { signal }) =>
          answer(signal, () => {
            done.push(`resize ${terminal?.cols}`);
            return {};
          }),
        signalProcess: ({ signal: number }, { signal }) =>
          answer(signal, () => {
            done.push(`signal ${number}`);
            return {};
          }),
      },
    },
  });
  const url = await platform.listen();
  socket = await openWebSocket(`${url}/sandboxes/box/processes/${id}/attach`);
  socket.resume();
});
afterEach(async () => {
  gate.resolve();
  socket.destroy();
  await platform.close();
});

/** A frame of input, or of text for what is JSON. */
const frameOf = (content: string, opcode = content.startsWith("{") ? 1 : 2) => dataFrame(content, opcode);

const resize = (cols: number) => JSON.stringify({ type: "resize", cols, rows: 24 });
const eof = JSON.stringify({ type: "eof" });
/** More than the buffers of a connection take. */
const muchBytes = 24 * 1024 * 1024;

test.each<[what: string, frame: string]>([
  ["no input", "\0"],
  ["a byte of input", "\0x"],
  ["an eof", eof],
  ["a resize", resize(80)],
  ["a signal", JSON.stringify({ type: "signal", signal: "SIGCONT" })],
])("no more frames of %s are read than may wait", async (_what, frame) => {
  const many = Buffer.concat(Array(1_000).fill(frameOf(frame)));
  let sent = 0;
  const isTaken = () =>
    new Promise<boolean>((resolve) => {
      const late = setTimeout(() => resolve(false), 1_000);
      socket.write(many, () => {
        clearTimeout(late);
        resolve(true);
      });
    });
  while (sent < muchBytes && (await isTaken())) sent += many.length;
  expect(sent).toBeLessThan(muchBytes);
  expect(mostOpen).toBe(1);
});

test("input that waits is written at once, in its order, and each end of it where it was", async () => {
  for (let i = 0; i < 1_000; i++) socket.write(frameOf(`\0${i} `));
  socket.write(frameOf("\0"));
  socket.write(Buffer.concat([frameOf(eof), frameOf("\0after"), frameOf(eof)]));
  await until(() => expect(open).toBe(1));
  gate.resolve();
  await until(() => expect(done).toEqual([`eof ${String(input).indexOf("after")}`, `eof ${input.length}`]));
  expect(String(input)).toBe(`${Array.from({ length: 1_000 }, (_, i) => `${i} `).join("")}after`);
  expect(writes).toBeLessThan(20);
});

test("more input than one call may have is passed on in several", async () => {
  const part = `\0${"0123456789".repeat(6_000)}`;
  const parts = 40;
  socket.write(Buffer.concat(Array(parts).fill(frameOf(part))));
  await until(() => expect(open).toBe(1));
  gate.resolve();
  await until(() => expect(input.length).toBe(parts * (part.length - 1)));
  expect(String(input)).toBe(part.slice(1).repeat(parts));
});

test.each([
  ["that another client writes to at the same moment", "-"],
  ["of a helper that doesn't tell what it took of a write", ""],
])("all input is written once to a full pipe %s", async (_who, theirs) => {
  [most, others] = [3, theirs];
  gate.resolve();
  socket.write(Buffer.concat([frameOf("\0first "), frameOf("\0last"), frameOf(eof)]));
  await until(() => expect(done).toEqual([`eof ${input.length}`]));
  expect(String(input).replaceAll("-", "")).toBe("first last");
});

test("resizes and signals come in their order, beside input that is held", async () => {
  socket.write(frameOf("\0held"));
  await until(() => expect(open).toBe(1));
  socket.write(
    Buffer.concat([frameOf(resize(81)), frameOf(resize(82)), frameOf('{"type":"signal","signal":"SIGINT"}')]),
  );
  await until(() => expect(open).toBe(2));
  expect(mostOpen).toBe(2);
  gate.resolve();
  await until(() => expect(done).toEqual(["resize 81", "resize 82", "signal 2"]));
});

test("what a client sent before it left is passed on", async () => {
  socket.write(Buffer.concat([frameOf("\0first "), frameOf("\0last"), frameOf(eof), frameOf("", 8)]));
  await until(() => expect(left).toBe(true));
  expect(open).toBe(1);
  gate.resolve();
  await until(() => expect(done).toEqual([`eof ${"first last".length}`]));
  expect(String(input)).toBe("first last");
});

test("what a client sent before it lost its access is not", async () => {
  socket.write(Buffer.concat([frameOf("\0first"), frameOf("\0last")]));
  await until(() => expect(open).toBe(1));
  platform.state.revokedTokens.add(apiToken);
  platform.bus.signal("identity.api_tokens.revoked", "");
  await until(() => expect(open).toBe(0));
  gate.resolve();
  expect(String(input)).toBe("");
});
