import { once } from "node:events";
import { get } from "node:http";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "./client.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";

// Node's own client takes headers too, which its types don't have.
const WebSocketClient = WebSocket as unknown as new (
  address: string,
  options: { headers: Record<string, string> },
) => WebSocket;

const mebibyte = 1024 * 1024;
/** More than what lies between a client and the sandbox takes of one that is stuck. */
const sentBytes = 16 * mebibyte;
const stuck = 12;

describe.runIf(await requireSandboxHost())("one that reads nothing holds itself alone", () => {
  let box: Box;
  const leaving: (() => void)[] = [];

  beforeAll(async () => {
    box = await openBox();
  });
  afterAll(async () => {
    for (const leave of leaving) leave();
    await box?.close();
  });

  const headersOf = () => ({ authorization: `Bearer ${box.owner.token}`, "x-workspace-id": box.owner.workspace });

  /** What takes bytes both ways, as many as one call may be sent. */
  async function expectOthersGoOn(): Promise<void> {
    const stdin = "x".repeat(400_000);
    for (let i = 0; i < 5; i++) {
      expect((await box.exec({ command: ["wc", "-c"], stdin })).stdout.trim()).toBe(String(stdin.length));
      const answer = await box.fetch("files?path=/tmp/file", {
        method: "PUT",
        headers: { "content-type": "application/octet-stream" },
        body: Buffer.alloc(4 * mebibyte, "y"),
      });
      expect([200, 201]).toContain(answer.status);
      expect((await (await box.fetch("files?path=/tmp/file")).arrayBuffer()).byteLength).toBe(4 * mebibyte);
    }
  }

  test("servers in the sandbox that take nothing of what they are sent", async () => {
    await box.start(["nc", "-ll", "-p", "4000", "-e", "sleep", "100000"]);
    await until(async () => {
      const { ports } = expectStatus(await box.target.get(box.path("listening"), box.as()), 200);
      expect(ports).toEqual([expect.objectContaining({ port: 4000 })]);
    });
    for (let i = 0; i < stuck; i++) {
      const address = `${box.target.url}${box.path("ports/4000/tcp")}`.replace(/^http/, "ws");
      const socket = new WebSocketClient(address, { headers: headersOf() });
      leaving.push(() => socket.close());
      await once(socket, "open");
      for (let sent = 0; sent < sentBytes; sent += 256 * 1024) socket.send(Buffer.alloc(256 * 1024));
    }
    await expectOthersGoOn();
  });

  test("clients that take nothing of an output, which then are cut off and delay nobody", async () => {
    const ids: string[] = [];
    for (let i = 0; i < stuck; i++) {
      const { id } = await box.start(["cat", "/dev/zero"]);
      ids.push(id);
      const url = box.target.url + box.path(`processes/${id}/output`);
      const request = get(url, { headers: { ...headersOf(), accept: "text/event-stream" } });
      leaving.push(() => request.destroy());
      // The answer is there, and nobody reads it.
      await once(request, "response");
      request.on("error", () => {});
      await until(async () => expect((await box.read(id)).output_bytes).toBeGreaterThan(2 * mebibyte));
    }
    await expectOthersGoOn();
    const [first = "", ...others] = ids;
    for (const id of others) await box.kill(id);
    // It waits for its only reader, for a while.
    const { output_bytes: before } = await box.read(first);
    await until(async () => expect((await box.read(first)).output_bytes).toBeGreaterThan(before + 4 * sentBytes));
    await box.kill(first);
  });
});
