import { once } from "node:events";
import { Agent, type ClientRequest, type IncomingMessage, request } from "node:http";
import { setImmediate } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { apiToken, openTestPlatform, type TestPlatform } from "../../test-platform.ts";
import type { RoutePlugin } from "../route.ts";

/** Answers with the sizes of the chunks in which it gets a body. */
const sizesRoute: RoutePlugin = async (app) => {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("*", async (_request: unknown, body: AsyncIterable<Buffer>) => {
    const sizes = [];
    for await (const chunk of body) sizes.push(chunk.length);
    return sizes;
  });
  app.post("/sizes", { config: { rules: { rpc: "none" } } }, (request, reply) => reply.send(request.body));
};

let platform: TestPlatform;
let url: string;
beforeAll(async () => {
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0", SANDGATE_SIGNIN_RATE_LIMIT: "0" },
    moreRoutes: [sizesRoute],
  });
  url = await platform.listen();
});
afterAll(() => platform.close());

function begin(path: string, bytes: number, agent: Agent | false = false): ClientRequest {
  const headers = {
    "content-type": "application/json",
    "content-length": String(bytes),
    authorization: `Bearer ${apiToken}`,
  };
  return request(`${url}${path}`, { method: "POST", headers, agent });
}

async function answerOf(sent: ClientRequest): Promise<{ status: number | undefined; code: string; retry?: string }> {
  const [answer]: IncomingMessage[] = await once(sent, "response");
  let text = "";
  for await (const chunk of answer ?? []) text += chunk;
  return { status: answer?.statusCode, code: JSON.parse(text).error?.code };
}

test("a route that anyone may call refuses a large body at its header", async () => {
  const sent = begin("/auth/login", 16 * 1024 + 1);
  sent.flushHeaders();
  expect(await answerOf(sent)).toEqual({ status: 422, code: "validation_error" });
  sent.destroy();
});

test("a connection goes on after a body that was refused", async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  for (const length of [1024 * 1024 + 1, 100_000]) {
    const sent = begin("/workspaces", length, agent);
    sent.end(Buffer.alloc(length, " "));
    expect(await answerOf(sent)).toEqual({ status: 422, code: "validation_error" });
  }
  agent.destroy();
});

test("a body of many small chunks is kept as few", async () => {
  const sent = request(`${url}/sizes`, { method: "POST", headers: { "content-type": "text/plain" }, agent: false });
  for (let at = 0; at < 100; at++) {
    sent.write("x".repeat(500));
    await setImmediate();
  }
  sent.end();
  const [answer]: IncomingMessage[] = await once(sent, "response");
  let text = "";
  for await (const chunk of answer ?? []) text += chunk;
  const sizes: number[] = JSON.parse(text);
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(50_000);
  for (const size of sizes.slice(0, -1)) expect(size).toBeGreaterThanOrEqual(4 * 1024);
});

const large = 1024 * 1024;

/** Sends all but the last byte of more bodies than may be unfinished, until the rest are refused. */
async function fill(): Promise<{ open: ClientRequest[]; refused: unknown }> {
  const open = Array.from({ length: 40 }, () => begin("/workspaces", large));
  const refused = Promise.withResolvers<unknown>();
  let left = open.length;
  for (const sent of open) {
    // Those that are refused are answered; the others wait for their last byte.
    answerOf(sent).then((answer) => --left === 16 && refused.resolve(answer), refused.reject);
    sent.write(Buffer.alloc(large - 1, " "));
  }
  return { open, refused: await refused.promise };
}

test("bodies that stay unfinished hold no more than their share, and give it back", async () => {
  const { open, refused } = await fill();
  expect(refused).toEqual({ status: 429, code: "rate_limited" });
  for (const sent of open) sent.on("error", () => {}).destroy();
  await expect
    .poll(async () => {
      const sent = begin("/workspaces", large);
      sent.end(Buffer.alloc(large, " "));
      return (await answerOf(sent)).status;
    })
    .toBe(422);
});

test("a connection goes on after a body that was one too many", async () => {
  const { open } = await fill();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const send = (bytes: number) => {
    const sent = begin("/workspaces", bytes, agent);
    sent.end(Buffer.alloc(bytes, " "));
    return answerOf(sent);
  };
  expect(await send(large)).toEqual({ status: 429, code: "rate_limited" });
  expect(await send(1)).toEqual({ status: 422, code: "validation_error" });
  for (const sent of open) sent.on("error", () => {}).destroy();
  agent.destroy();
});
