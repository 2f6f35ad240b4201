import { Readable } from "node:stream";
import { expect, test } from "vitest";
import { finishProgress, readJsonLines } from "./streams.ts";

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
