import { once } from "node:events";
import { Agent, type ClientRequest, type IncomingMessage, request } from "node:http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { apiToken, openTestPlatform, type TestPlatform } from "../../test-platform.ts";

let platform: TestPlatform;
let url: string;
beforeAll(async () => {
  platform = await openTestPlatform({ env: { SANDGATE_RATE_LIMIT: "0", SANDGATE_SIGNIN_RATE_LIMIT: "0" } });
  url = await platform.listen();
});
afterAll(() => platform.close());

function begin(path: string, bytes: number): ClientRequest {
  const headers = {
    "content-type": "application/json",
    "content-length": String(bytes),
    authorization: `Bearer ${apiToken}`,
  };
  return request(`${url}${path}`, { method: "POST", headers, agent: false });
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
  const headers = { "content-type": "application/json", authorization: `Bearer ${apiToken}` };
  for (const length of [1024 * 1024 + 1, 100_000]) {
    const sent = request(`${url}/workspaces`, {
      method: "POST",
      headers: { ...headers, "content-length": length },
      agent,
    });
    sent.end(Buffer.alloc(length, " "));
    expect(await answerOf(sent)).toEqual({ status: 422, code: "validation_error" });
  }
  agent.destroy();
});

test("bodies that stay unfinished hold no more than their share, and give it back", async () => {
  const large = 1024 * 1024;
  const part = Buffer.alloc(large - 1, " ");
  const open = Array.from({ length: 40 }, () => begin("/workspaces", large));
  const refused = Promise.withResolvers<unknown>();
  let left = open.length;
  for (const sent of open) {
    // Those that are refused are answered; the others wait for their last byte.
    answerOf(sent).then((answer) => --left === 16 && refused.resolve(answer), refused.reject);
    sent.write(part);
  }
  expect(await refused.promise).toEqual({ status: 429, code: "rate_limited" });
  for (const sent of open) sent.on("error", () => {}).destroy();
  await expect
    .poll(async () => {
      const sent = begin("/workspaces", large);
      sent.end(Buffer.concat([part, Buffer.from(" ")]));
      return (await answerOf(sent)).status;
    })
    .toBe(422);
});
