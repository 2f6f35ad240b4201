import { once } from "node:events";
import { createServer, type Http2Server, type ServerHttp2Stream } from "node:http2";
import { type AddressInfo, createServer as createSocketServer } from "node:net";
import { Code, createClient } from "@connectrpc/connect";
import { Http2SessionManager } from "@connectrpc/connect-node";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { afterEach, expect, test } from "vitest";
import { createHttp2Transport } from "./http2-transport.ts";

// Answers that no host of ours would give; the rest is in rpc.test.ts and replicas.test.ts.

const servers: { close(): unknown }[] = [];
const sessions: Http2SessionManager[] = [];
afterEach(() => {
  for (const session of sessions.splice(0)) session.abort();
  for (const server of servers.splice(0)) server.close();
});

function openClient(server: { address(): unknown }) {
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const sessionManager = new Http2SessionManager(baseUrl);
  sessions.push(sessionManager);
  return createClient(WorkspaceService, createHttp2Transport({ baseUrl, sessionManager, readMaxBytes: 1_000 }));
}

/** A client of a server that answers each call like this. */
async function openClientOf(answer: (stream: ServerHttp2Stream) => void) {
  const server: Http2Server = createServer().on("stream", (stream) => {
    stream.on("error", () => {});
    answer(stream);
  });
  servers.push(server.listen(0, "127.0.0.1"));
  await once(server, "listening");
  return openClient(server);
}

const proto = { ":status": 200, "content-type": "application/proto" };

test("an answer that is cut short is none", async () => {
  const shorter = await openClientOf((stream) => {
    stream.respond({ ...proto, "content-length": 10 });
    stream.end("short");
  });
  await expect(shorter.getWorkspace({})).rejects.toMatchObject({ code: Code.Unavailable });
  const broken = await openClientOf((stream) => {
    stream.respond({ ...proto, "content-length": 10 });
    stream.write("some", () => stream.session?.destroy());
  });
  await expect(broken.getWorkspace({})).rejects.toMatchObject({ code: Code.Unavailable });
  const refused = await openClientOf((stream) => stream.close(7));
  await expect(refused.getWorkspace({})).rejects.toThrow("NGHTTP2_REFUSED_STREAM");
});

test("an answer over the limit, of another kind or compressed is refused", async () => {
  const large = await openClientOf((stream) => {
    stream.respond(proto);
    stream.end("x".repeat(2_000));
  });
  await expect(large.getWorkspace({})).rejects.toMatchObject({ code: Code.ResourceExhausted });
  const page = await openClientOf((stream) => {
    stream.respond({ ":status": 503, "content-type": "text/html" });
    stream.end("<p>a proxy's");
  });
  await expect(page.getWorkspace({})).rejects.toMatchObject({ code: Code.Unavailable });
  const compressed = await openClientOf((stream) => {
    stream.respond({ ...proto, "content-encoding": "gzip" });
    stream.end("x");
  });
  await expect(compressed.getWorkspace({})).rejects.toMatchObject({ code: Code.Internal });
});

test("header and trailer are told apart", async () => {
  const client = await openClientOf((stream) => {
    stream.respond({ ...proto, replica: "one", "trailer-cost": "2" });
    stream.end();
  });
  const seen: Record<string, string>[] = [];
  const note = (fields: Headers) => void seen.push(Object.fromEntries(fields));
  await client.getWorkspace({}, { onHeader: note, onTrailer: note });
  expect(seen).toEqual([expect.objectContaining({ replica: "one" }), { cost: "2" }]);
});

test("a deadline and the caller's leaving count while a connection is being made", async () => {
  // Takes connections and says nothing, as a host that hangs.
  const server = createSocketServer(() => {}).listen(0, "127.0.0.1");
  servers.push(server);
  await once(server, "listening");
  const client = openClient(server);
  await expect(client.getWorkspace({}, { timeoutMs: 50 })).rejects.toMatchObject({ code: Code.DeadlineExceeded });
  const leaving = new AbortController();
  const call = client.getWorkspace({}, { signal: leaving.signal });
  leaving.abort();
  await expect(call).rejects.toMatchObject({ code: Code.Canceled });
  await expect(client.getWorkspace({}, { signal: leaving.signal })).rejects.toMatchObject({ code: Code.Canceled });
});
