import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { setTimeout as delay } from "node:timers/promises";
import { test as baseTest } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { openEngine } from "./client.ts";
import { openExec } from "./exec.ts";

const missing = 'OCI runtime exec failed: exec failed: exec: "/helper": stat /helper: no such file or directory\r\n';

function frame(content: string, stream = 1): Buffer {
  const header = Buffer.alloc(8);
  header[0] = stream;
  header.writeUInt32BE(Buffer.byteLength(content), 4);
  return Buffer.concat([header, Buffer.from(content)]);
}

/** Runs a program on an engine that answers so, and gives its stream and the engine's side of it. */
const test = baseTest.extend("run", async ({ folder }, { onCleanup }) => {
  const server = createServer(({ url }, response) => {
    const answer = url?.endsWith("/json") ? { ExitCode: 126 } : { Id: "e" };
    response.writeHead(url?.endsWith("/json") ? 200 : 201, { "content-type": "application/json" });
    response.end(JSON.stringify(answer));
  });
  const upgraded = Promise.withResolvers<Duplex>();
  server.on("upgrade", (_, socket) => {
    socket.write("HTTP/1.1 101 UPGRADED\r\nconnection: Upgrade\r\nupgrade: tcp\r\n\r\n");
    upgraded.resolve(socket);
  });
  const path = join(folder, "engine.sock");
  await new Promise<void>((resolve) => server.listen(path, resolve));
  onCleanup(() => void server.close());
  return async () => {
    const stream = await openExec(openEngine(`docker://${path}`).getContainer("c"), ["/helper"], {
      signal: new AbortController().signal,
      explainEnd: (exitCode, errorOutput) => new Error(`ended with ${exitCode}: ${errorOutput}`),
    });
    return { stream, engine: await upgraded.promise };
  };
});

/** So that each is read alone. */
async function sendApart(engine: Duplex, chunks: readonly Buffer[]): Promise<void> {
  for (const chunk of chunks) {
    engine.write(chunk);
    await delay(20);
  }
  engine.end();
}

test("a program that could not be started has no output: what the engine says there is why", async ({ run }) => {
  const { stream, engine } = await run();
  const answer = frame(missing);
  const sent = sendApart(engine, [answer.subarray(0, 3), answer.subarray(3, 12), answer.subarray(12)]);
  await expect(text(stream)).rejects.toThrow(`ended with 126: ${missing}`);
  await sent;
});

test("an error output alone explains the end, too", async ({ run }) => {
  const { stream, engine } = await run();
  engine.end(frame("usage", 2));
  await expect(text(stream)).rejects.toThrow("ended with 126: usage");
});

test.for([
  ["ends as the engine's words begin", ["OCI runtime"]],
  ["says them in more than one piece", ["OCI runtime ", "exec failed"]],
  ["says them later", ["1", missing]],
  ["begins otherwise", ["OCI image", "s"]],
] as const)("a program that %s says what it says", async ([, said], { run }) => {
  const { stream, engine } = await run();
  engine.end(Buffer.concat(said.map((each) => frame(each))));
  expect(await text(stream)).toBe(said.join(""));
});

test("what a program says first is there before the rest has come", async ({ run }) => {
  const { stream, engine } = await run();
  engine.write(frame("OC! and on").subarray(0, 11));
  const [first] = await once(stream, "data");
  expect(String(first)).toBe("OC!");
  stream.destroy();
});
