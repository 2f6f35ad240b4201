import { createHash, randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform } from "../../platform/local.ts";
import { type Operator, openOperator } from "../../platform/operator.ts";

const kills = Number(process.env.SANDGATE_FAULT_KILLS ?? 100);
const clientsOfEachKind = 5;
const partBytes = 20_000;

describe.runIf(await requireServer("docker", probeEngine))("the platform is killed while sandboxes are used", () => {
  let platform: TestPlatform;
  let operator: Operator;
  let sandboxId: string;
  let isOver = false;

  beforeAll(async () => {
    platform = await startPlatform();
    operator = await openOperator(platform);
    sandboxId = await operator.provisionReady(operator.defaultImageId);
  });
  afterAll(() => platform?.stop());

  /** Sends a request until it is answered, for as long as the platform is away. */
  async function send(method: string, path: string, o: { json?: unknown; bytes?: Buffer; key?: string } = {}) {
    for (;;) {
      const response = await fetch(`${platform.url}/sandboxes/${sandboxId}${path}`, {
        method,
        headers: {
          authorization: `Bearer ${operator.as.token}`,
          "x-workspace-id": operator.as.workspace,
          ...(o.key !== undefined && { "idempotency-key": o.key }),
          ...((o.json !== undefined || o.bytes) && {
            "content-type": o.bytes ? "application/octet-stream" : "application/json",
          }),
        },
        ...((o.json !== undefined || o.bytes) && { body: o.bytes ?? JSON.stringify(o.json) }),
      }).then(
        async (answer) => ({ status: answer.status, body: Buffer.from(await answer.arrayBuffer()) }),
        () => undefined,
      );
      if (response && response.status < 500) return response;
      await delay(50);
    }
  }

  async function sendJson(method: string, path: string, json: unknown, key?: string) {
    const { status, body } = await send(method, path, { json, ...(key !== undefined && { key }) });
    expect(status, body.toString()).toBeLessThan(300);
    return JSON.parse(body.toString());
  }

  async function run(command: string): Promise<string> {
    const result = await sendJson("POST", "/exec", { command }, randomUUID());
    expect(result).toMatchObject({ exit_code: 0 });
    return result.stdout;
  }

  /** Follows a process that counts; each number must come once, in order. */
  async function tail(): Promise<number> {
    const command = "i=0; while :; do echo $i; i=$((i + 1)); sleep 0.01; done";
    const { id } = await sendJson("POST", "/processes", { command }, randomUUID());
    let next = 0;
    let text = "";
    let count = 0;
    while (!isOver) {
      const page = JSON.parse(
        (await send("GET", `/processes/${id}/output?after=${next}&wait_seconds=2`)).body.toString(),
      );
      next = page.next;
      text += page.events.map((event: { data?: string }) => event.data ?? "").join("");
      const lines = text.split("\n");
      text = lines.pop() ?? "";
      for (const line of lines) expect(Number(line)).toBe(count++);
    }
    await send("DELETE", `/processes/${id}`);
    return count;
  }

  /** Writes to a program's input by offset, and compares what arrived. */
  async function write(index: number): Promise<number> {
    const file = `/tmp/input-${index}`;
    const command = `cat > ${file}`;
    const { id } = await sendJson("POST", "/processes", { command, stdin_open: true }, randomUUID());
    const sent = createHash("sha256");
    let offset = 0;
    for (let part = 0; !isOver; part++) {
      const bytes = Buffer.alloc(partBytes, `${index} ${part} `);
      sent.update(bytes);
      const end = offset + bytes.length;
      while (offset < end) {
        const rest = bytes.subarray(bytes.length - (end - offset));
        const answer = await send("POST", `/processes/${id}/stdin?offset=${offset}`, { bytes: rest });
        expect(answer.status, answer.body.toString()).toBe(200);
        offset = JSON.parse(answer.body.toString()).offset;
      }
    }
    await send("POST", `/processes/${id}/stdin?offset=${offset}&eof=true`, { bytes: Buffer.alloc(0) });
    await sendJson("POST", `/processes/${id}/wait`, { timeout_seconds: 30 });
    expect(await run(`sha256sum < ${file}`)).toContain(sent.digest("hex"));
    return offset;
  }

  /** Repeats each command until it is answered; each must have run once. */
  async function command(index: number): Promise<number> {
    const file = `/tmp/log-${index}`;
    let count = 0;
    while (!isOver) {
      const json = { command: `echo ${count} >> ${file}`, on_disconnect: "continue" };
      expect(await sendJson("POST", "/exec", json, randomUUID())).toMatchObject({ exit_code: 0 });
      count++;
      await delay(20);
    }
    expect((await run(`cat ${file}`)).trimEnd().split("\n").map(Number)).toEqual(
      Array.from({ length: count }, (_, i) => i),
    );
    return count;
  }

  /** Replaces a file, and reads it: whole, and never older than what was answered for. */
  async function replace(index: number): Promise<number> {
    const path = `/files?path=/tmp/file-${index}`;
    let count = 0;
    while (!isOver) {
      const bytes = Buffer.alloc(partBytes, `${count} `);
      expect((await send("PUT", path, { bytes })).status).toBeLessThan(300);
      expect((await send("GET", path)).body.equals(bytes)).toBe(true);
      count++;
    }
    return count;
  }

  test(`nothing is lost or doubled in ${kills} kills`, { timeout: 3_600_000 }, async () => {
    const kinds = { tail, write, command, replace };
    const working = Object.entries(kinds).map(async ([name, work]) => {
      const counts = await Promise.all(Array.from({ length: clientsOfEachKind }, (_, index) => work(index)));
      return [name, counts.reduce((sum, count) => sum + count, 0)] as const;
    });
    const finished = Promise.all(working);
    const killing = (async () => {
      for (let kill = 0; kill < kills; kill++) {
        await delay(300 + 700 * Math.random());
        await platform.kill();
        await platform.start();
      }
      isOver = true;
    })();
    await Promise.race([killing, finished]);
    await killing;
    const totals = Object.fromEntries(await finished);
    for (const name of Object.keys(kinds)) expect(totals[name], name).toBeGreaterThan(kills);
    process.stdout.write(`${kills} kills: ${JSON.stringify(totals)}\n`);
  });
});
