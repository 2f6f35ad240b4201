import { connect } from "node:net";
import { text } from "node:stream/consumers";
import Fastify from "fastify";
import { expect, test } from "vitest";
import { sendBody } from "./bodies.ts";

test("a body that fails is no whole one for a client of HTTP/1.0, which knows no chunks", async () => {
  const app = Fastify();
  app.get("/", async (_request, reply) => {
    async function* chunks() {
      yield Buffer.from("a part");
      throw new Error("broken");
    }
    await sendBody(reply, { chunks: chunks(), signal: new AbortController().signal, onError: () => {} });
    return reply;
  });
  const { port } = new URL(await app.listen({ host: "127.0.0.1", port: 0 }));
  const client = connect(Number(port), "127.0.0.1");
  client.write("GET / HTTP/1.0\r\n\r\n");
  await expect(text(client)).rejects.toThrow("ECONNRESET");
  await app.close();
});
