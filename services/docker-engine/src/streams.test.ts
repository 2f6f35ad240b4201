import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { finishProgress, readJsonLines, readJsonList } from "./streams.ts";

/** Each byte in a chunk of its own. */
function streamOf(text: string): Readable {
  return Readable.from(Array.from(Buffer.from(text), (byte) => Buffer.of(byte)));
}

async function readAll(text: string): Promise<unknown[]> {
  const values: unknown[] = [];
  for await (const value of readJsonLines(streamOf(text))) values.push(value);
  return values;
}

test("values are read whole, with empty lines left out and a last line without line end", async () => {
  expect(await readAll('{"a":"€"}\r\n\n[1]\n{"b":2}')).toEqual([{ a: "€" }, [1], { b: 2 }]);
});

test("a line that isn't JSON is a failure", async () => {
  await expect(readAll('{"a":1}\n{"b":')).rejects.toThrow(SyntaxError);
});

test("progress that ends well is read to its end, any other throws what the engine reported", async () => {
  await finishProgress(streamOf('{"status":"Pulling"}\n{"status":"Done"}\n'));
  const failed = finishProgress(streamOf('{"status":"Pulling"}\n{"errorDetail":{},"error":"manifest unknown"}\n'));
  await expect(failed).rejects.toMatchObject({ message: "manifest unknown", statusCode: 500 });
});

test("the objects of a list are read whole, whatever is in them, and before the list is over", async () => {
  const objects = [{ a: "}]{\\" }, {}, { b: { c: ["{", { d: '"€' }] } }, { '\\"': "x" }];
  const text = JSON.stringify(objects);
  for (const stream of [streamOf(text), Readable.from([Buffer.from(text)])]) {
    const read: unknown[] = [];
    for await (const object of readJsonList(stream)) read.push(object);
    expect(read).toEqual(objects);
  }
  async function* endless() {
    yield Buffer.from("[{},");
    for (;;) yield Buffer.alloc(2 ** 20, '{"a":');
  }
  const list = readJsonList(endless());
  expect(await list.next()).toEqual({ done: false, value: {} });
  await expect(list.next()).rejects.toThrow("an object has more than 16777216 bytes");
});
