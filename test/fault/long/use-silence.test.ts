import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openEventStream } from "../../conformance/event-stream.ts";
import { startPlatform, type TestPlatform } from "../../platform/local.ts";
import { type Operator, openOperator } from "../../platform/operator.ts";

const silentSeconds = Number(process.env.SANDGATE_FAULT_SILENCE_SECONDS ?? 600);
/** As the contract says; a busy machine may be late. */
const commentSeconds = 15;

describe.runIf(await requireServer("docker", probeEngine))("a command that is silent", () => {
  let platform: TestPlatform;
  let operator: Operator;
  let sandboxId: string;

  beforeAll(async () => {
    platform = await startPlatform();
    operator = await openOperator(platform);
    sandboxId = await operator.provisionReady(operator.defaultImageId);
  });
  afterAll(() => platform?.stop());

  test(`for ${silentSeconds} s is followed by comments, and its exit comes`, { timeout: 3_600_000 }, async () => {
    const answer = await openEventStream(`${platform.url}/sandboxes/${sandboxId}/exec`, {
      ...operator.as,
      body: { command: `sleep ${silentSeconds}; exit 7`, timeout_seconds: silentSeconds + 600 },
    });
    expect(answer.status).toBe(200);
    // Node.js ends an answer of which nothing came for five minutes.
    const blocks = (await answer.text()).split("\n\n").filter(Boolean);
    const comments = blocks.filter((block) => block.startsWith(":"));
    const events = blocks
      .filter((block) => !block.startsWith(":"))
      .map((block) => [/^event: ?(.*)$/m.exec(block)?.[1], JSON.parse(/^data: ?(.*)$/m.exec(block)?.[1] ?? "null")]);
    expect(events).toEqual([
      ["start", expect.objectContaining({ state: "running" })],
      ["exit", expect.objectContaining({ state: "exited", exit_code: 7, timed_out: false, output_bytes: 0 })],
    ]);
    expect(comments.length).toBeGreaterThan(silentSeconds / commentSeconds / 2);
  });
});
