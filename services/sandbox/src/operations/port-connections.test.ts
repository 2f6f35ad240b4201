import { createClient, createRouterTransport } from "@connectrpc/connect";
import { PortService } from "@sandgate/proto/helper/v1/port";
import { expect, test } from "vitest";
import { connectPort, type Part } from "./port-connections.ts";

type Answer = { case: "connected" | "eof"; value: true } | { case: "data"; value: Uint8Array };

const connected: Answer = { case: "connected", value: true };
const data: Answer = { case: "data", value: Buffer.from("whole") };
const eof: Answer = { case: "eof", value: true };

/** What comes of a connection on which the helper answers this, and which then breaks off. */
async function readBroken(...answers: Answer[]): Promise<unknown[]> {
  const transport = createRouterTransport(({ service }) => {
    service(PortService, {
      async *connect() {
        for (const part of answers) yield { part };
        throw new Error("broken off");
      },
    });
  });
  const nothing: AsyncIterable<{ part: Part<never> }> = (async function* () {})();
  const { signal } = new AbortController();
  const received: unknown[] = [];
  const client = createClient(PortService, transport);
  for await (const { part } of connectPort(async () => client, { port: 1, data: nothing, signal })) {
    received.push(part.case);
  }
  return received;
}

test("what fails after the server's end, as a write to it does, is no failure of the connection", async () => {
  expect(await readBroken(connected, data, eof)).toEqual(["connected", "data", "eof"]);
});

test("one that breaks off before it fails", async () => {
  await expect(readBroken(connected, data)).rejects.toThrow();
});
