import { setImmediate } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { expect, test } from "vitest";
import { writeForm } from "./forms.ts";

const type = "multipart/form-data; boundary=b";
const padding = "x".repeat(70_000);

/** Bytes of the heap and of buffers in use after a collection of garbage. */
function measureMemory(): number {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

test.each([
  ["headers", 900, `X: ${padding}\r\n\r\n.\r\n`],
  ["parameters", 900, `\r\n.\r\n`],
  ["ignored fields", 450, `\r\n.\r\n--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n${padding}\r\n`],
])("a form takes little memory while its files are written, though it is padded with %s", async (kind, count, rest) => {
  const parameter = kind === "parameters" ? `; x="${padding}"` : "";
  async function* chunks(): AsyncGenerator<Uint8Array> {
    for (let index = 0; index < count; index++) {
      const disposition = `Content-Disposition: form-data; name="file"; filename="/a/folder/of/files/${index}"`;
      yield Buffer.from(`--b\r\n${disposition}${parameter}\r\n${rest}`);
    }
    yield Buffer.from("--b--\r\n");
  }
  const before = measureMemory();
  let most = 0;
  let index = 0;
  const written = await writeForm(type, chunks(), undefined, async (path, content) => {
    const parts: Uint8Array[] = [];
    for await (const part of content) parts.push(part);
    // More of the form could be read meanwhile.
    for (let turn = 0; turn < 5; turn++) await setImmediate();
    if (++index % 150 === 0) most = Math.max(most, measureMemory() - before);
    return { name: Buffer.concat(parts).toString(), type: "file", path };
  });
  expect(written).toHaveLength(count);
  expect(written.at(-1)).toEqual({ name: ".", type: "file", path: `/a/folder/of/files/${count - 1}` });
  expect(most).toBeLessThan(16 * mebibyte);
});
