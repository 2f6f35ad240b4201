import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { afterEach, expect, test } from "vitest";
import { JoinedBytes, JoinedRequest } from "./joined-bytes.ts";

const server = createServer({ IncomingMessage: JoinedRequest });
afterEach(() => {
  server.close();
  server.closeAllConnections();
});

test("bytes are joined in their order, and given once", () => {
  const joined = new JoinedBytes();
  for (const text of ["a", "", "bc", "x".repeat(10_000), "d"]) joined.add(Buffer.from(text));
  expect(joined.length).toBe(10_004);
  expect(String(joined.take())).toBe(`abc${"x".repeat(10_000)}d`);
  expect([joined.length, String(joined.take())]).toEqual([0, ""]);
  joined.add(Buffer.from("e"));
  expect(String(joined.take())).toBe("e");
});

test("a body of small chunks comes as few, also to a reader that waits, and large ones come as they are", async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = connect((server.address() as AddressInfo).port, "127.0.0.1");
  client.on("error", () => {});
  const small = Array.from({ length: 300_000 }, (_, at) => String.fromCharCode(97 + (at % 26)));
  const large = "x".repeat(50_000);
  client.write("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  client.write(small.map((chunk) => `1\r\n${chunk}\r\n`).join(""));
  client.write(`${large.length.toString(16)}\r\n${large}\r\n0\r\n\r\n`);
  const [request]: JoinedRequest[] = await once(server, "request");
  const chunks: string[] = [];
  let isWaiting = false;
  request?.on("data", (chunk: Buffer) => {
    chunks.push(chunk.toString());
    if (isWaiting) return;
    isWaiting = true;
    request.pause();
    setTimeout(() => {
      isWaiting = false;
      request.resume();
    }, 1);
  });
  await once(request as JoinedRequest, "end");
  expect(chunks.join("")).toBe(small.join("") + large);
  expect(chunks.length).toBeLessThan(2_000);
  client.destroy();
});
