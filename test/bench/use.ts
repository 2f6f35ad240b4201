import { openTestEngine } from "@sandgate/test-support/images";
import type Docker from "dockerode";
import pLimit from "p-limit";
import { expectStatus } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { type Figure, median, percentile } from "./figure.ts";
import { measureFiles } from "./files.ts";
import { type JsonClient, openJsonClient } from "./json-client.ts";

const firstUses = 10;
const commands = 300;
const atOnce = 32;
const engineCommands = 20;
const sandboxes = 100;

/** Commands and files in ready sandboxes over the public API, against the engine's own exec and copy of the same. */
export async function measureUse(): Promise<Figure[]> {
  await using closing = new AsyncDisposableStack();
  const settings = {
    SANDGATE_LOG_LEVEL: "warn",
    SANDGATE_WORKSPACE_MAX_SANDBOXES: String(2 * sandboxes),
    SANDGATE_USER_MAX_SANDBOXES: String(2 * sandboxes),
  };
  const platform = closing.adopt(await startPlatform({ settings }), (each) => each.stop());
  const operator = await openOperator(platform);
  const headers = { authorization: `Bearer ${operator.as.token}`, "x-workspace-id": operator.as.workspace };
  const client = closing.adopt(openJsonClient(platform.url, { headers }), (each) => each.close());
  const first = await measureFirstUse(operator, client);
  const sandboxId = await operator.provisionReady(operator.defaultImageId);
  return [
    first,
    ...(await measureCommands(client, openTestEngine(), sandboxId)),
    await measureFirstByte(platform, headers, sandboxId),
    await measureThroughput(client, sandboxId),
    ...(await measureFiles(platform, operator, sandboxId)),
    await measureManySandboxes(operator, client),
  ];
}

async function runTrue(client: JsonClient, sandboxId: string): Promise<void> {
  const result = await client.call("POST", `/sandboxes/${sandboxId}/exec`, { body: { command: ["true"] } });
  if (result.exit_code !== 0) throw new Error(`true ended with ${result.exit_code}`);
}

async function timeOf(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

async function timesOf(count: number, work: () => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  while (times.length < count) times.push(await timeOf(work));
  return times;
}

function spread(times: readonly number[]): string {
  return `p50 ${median(times).toFixed(1)} ms, p99 ${percentile(times, 0.99).toFixed(1)} ms of ${times.length}`;
}

async function measureFirstUse(operator: Operator, client: JsonClient): Promise<Figure> {
  const times: number[] = [];
  for (let index = 0; index < firstUses; index++) {
    const sandboxId = await operator.provisionReady(operator.defaultImageId);
    times.push(await timeOf(() => runTrue(client, sandboxId)));
    await operator.delete(`/sandboxes/${sandboxId}`, operator.as);
  }
  return {
    what: "first command in a sandbox",
    value: median(times),
    unit: " ms",
    aim: "at most 300",
    detail: spread(times),
  };
}

/** Alternating, so that both meet the same machine. */
async function measureCommands(client: JsonClient, engine: Docker, sandboxId: string): Promise<Figure[]> {
  const container = engine.getContainer(`sandgate-${sandboxId}`);
  const ours: number[] = [];
  const bare: number[] = [];
  // As of a platform that has run for a while.
  await timesOf(commands, () => runTrue(client, sandboxId));
  for (let round = 0; round < engineCommands; round++) {
    ours.push(...(await timesOf(commands / engineCommands, () => runTrue(client, sandboxId))));
    bare.push(
      await timeOf(async () => {
        const exec = await container.exec({ Cmd: ["true"], AttachStdout: true, AttachStderr: true });
        for await (const _ of await exec.start({})) {
          // `true` prints nothing.
        }
        const { ExitCode: exitCode } = await exec.inspect();
        if (exitCode !== 0) throw new Error(`true ended with ${exitCode}`);
      }),
    );
  }
  return [
    { what: "command over REST", value: median(ours), unit: " ms", aim: "at most 5", detail: spread(ours) },
    {
      what: "command over REST, of the engine's own exec",
      value: median(ours) / median(bare),
      unit: "",
      aim: "at most 0.1",
      detail: `the engine: ${spread(bare)}`,
    },
  ];
}

async function measureFirstByte(
  { url }: TestPlatform,
  headers: Record<string, string>,
  sandboxId: string,
): Promise<Figure> {
  const times = await timesOf(commands, async () => {
    const response = await fetch(`${url}/sandboxes/${sandboxId}/exec`, {
      method: "POST",
      headers: { ...headers, "content-type": "application/json", accept: "text/event-stream" },
      body: JSON.stringify({ command: ["echo", "x"] }),
    });
    let text = "";
    const decoder = new TextDecoder();
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk, { stream: true });
      if (text.includes("event: output")) return;
    }
    throw new Error(`no output came: ${response.status} ${text}`);
  });
  return {
    what: "first byte of a command",
    value: median(times),
    unit: " ms",
    aim: "at most 5, p99 25",
    detail: spread(times),
  };
}

async function measureThroughput(client: JsonClient, sandboxId: string): Promise<Figure> {
  const limit = pLimit(atOnce);
  const count = 4 * commands;
  const ms = await timeOf(() =>
    Promise.all(Array.from({ length: count }, () => limit(() => runTrue(client, sandboxId)))),
  );
  const value = (count * 1000) / ms;
  return {
    what: "commands in one sandbox",
    value,
    unit: "/s",
    aim: "at least 300",
    detail: `${count}, ${atOnce} at once`,
  };
}

async function measureManySandboxes(operator: Operator, client: JsonClient): Promise<Figure> {
  const limit = pLimit(8);
  const { image } = expectStatus(await operator.get(`/sandbox-images/${operator.defaultImageId}`, operator.as), 200);
  const small = await operator.registerImage(image);
  const ids = await Promise.all(Array.from({ length: sandboxes }, () => limit(() => operator.provisionReady(small))));
  await Promise.all(ids.map((id) => limit(() => runTrue(client, id))));
  const runAll = () => Promise.all(ids.map((id) => timeOf(() => runTrue(client, id))));
  // The first round also opens the clients' connections, and is reported apart.
  const connecting = await runAll();
  const times: number[] = [];
  for (let round = 0; round < 5; round++) times.push(...(await runAll()));
  return {
    what: `${sandboxes} commands at once in as many sandboxes, p99`,
    value: percentile(times, 0.99),
    unit: " ms",
    aim: "at most 400",
    detail: `${spread(times)}; before them, with new connections: ${spread(connecting)}`,
  };
}
