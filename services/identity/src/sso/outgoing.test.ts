import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { fetchFromProvider } from "./outgoing.ts";

let stop: () => void;
afterEach(() => stop());

/** The address of a server that answers like this. */
async function serve(answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, "127.0.0.1");
  await once(server, "listening");
  stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

test("a response comes as it is", async () => {
  const url = await serve((_, response) => response.writeHead(201, { "x-test": "yes" }).end('{"a":1}'));
  const response = await fetchFromProvider(url, {});
  expect([response.status, response.headers.get("x-test"), await response.json()]).toEqual([201, "yes", { a: 1 }]);
});

test("a response that doesn't end is given up", async () => {
  const url = await serve((_, response) => {
    const more = () => {
      while (response.write(Buffer.alloc(64 * 1024)));
    };
    response.on("drain", more);
    more();
  });
  const response = await fetchFromProvider(url, {});
  await expect(response.text()).rejects.toThrow("more than 1048576 bytes");
});

test("a response without a body is none", async () => {
  const url = await serve((_, response) => response.writeHead(204).end());
  expect((await fetchFromProvider(url, {})).status).toBe(204);
});
