// The process of the collectors bench that has the collectors:
// `node … <address of telemetry> <folder of keys> <shape of the load as JSON>`.
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Client, createClient } from "@connectrpc/connect";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { createRemoteTransport } from "@sandgate/kit/rpc/clients";
import { asService } from "@sandgate/kit/rpc/context";
import { openTokenSigner } from "@sandgate/kit/rpc/internal-keys";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { type NodeCollector, type NodeSource, startNodeCollector } from "@sandgate/telemetry/node-collector";
import type { Load, Sent } from "./collectors.ts";

/** How long what is left at the end may take to be stored. */
const drainMs = 60_000;
const nodesAtOnce = 4;
const [url = "", keysFolder = "", given = ""] = process.argv.slice(2);
const { nodes, podsOfNode, seconds, lineMs }: Load = JSON.parse(given);
const logger = createLogger({ service: "collector", level: "silent" });
const file = join(keysFolder, "collector.jwk.json");
const signer = await openTokenSigner({ caller: "collector", file, logger });

const begun = Promise.withResolvers<number>();
let beginMs = Number.POSITIVE_INFINITY;
const isOver = () => Date.now() >= beginMs + seconds * 1000;
const sent = { opened: 0, calls: 0, rows: 0, failures: 0, lines: 0, samples: 0, lateMs: [] as number[], taken: 0 };

/** Pods that write their lines at moments of their own, by number, and use nothing. */
function simulatePods(node: number): NodeSource {
  const numberOf = (id: string) => node * podsOfNode + Number(id.slice(id.lastIndexOf("-") + 1));
  const pods = Array.from({ length: podsOfNode }, (_, pod) => {
    const id = `container-${node}-${pod}`;
    return { id, sandboxId: `sandbox-${numberOf(id)}`, state: "running" as const };
  });
  return {
    list: async ({ sandboxId }) => pods.filter((pod) => sandboxId === undefined || pod.sandboxId === sandboxId),
    inspect: async (id) => pods.find((pod) => pod.id === id),
    async *watch(signal) {
      // None comes or goes.
      yield* [];
      await delay(2 ** 30, undefined, { signal });
    },
    async *readLogs({ id }, cursor, { signal }) {
      const firstMs = (await begun.promise) + ((numberOf(id) * 7_919) % lineMs);
      const count = Math.ceil((beginMs + seconds * 1000 - firstMs) / lineMs);
      for (let next = Number(cursor); next < count; ) {
        await delay(Math.max(0, firstMs + next * lineMs - Date.now()), undefined, { signal });
        const rows = [];
        for (; next < count && firstMs + next * lineMs <= Date.now(); next++) {
          const log = `${next} GET /things/${(next * 7_919) % 100_003} 200, answered after ${next % 977} ms`;
          rows.push({ timeNs: BigInt(firstMs + next * lineMs) * 1_000_000n, stream: "stdout" as const, log });
        }
        // Timers fire some milliseconds early.
        if (rows.length > 0) yield { rows, cursor: String(next) };
      }
      await delay(2 ** 30, undefined, { signal });
    },
    openSampler: () => async () => {
      if (Date.now() < beginMs || isOver()) return undefined;
      sent.taken += 1;
      return { timeNs: BigInt(Date.now()) * 1_000_000n, cpuSeconds: process.uptime(), memoryBytes: 2 ** 26 };
    },
    markEnded: async () => false,
  };
}

/** Counts what telemetry has stored, and how long after it was written. */
function counting(client: Client<typeof TelemetryService>): Pick<typeof client, "ingestTelemetry"> {
  return {
    async ingestTelemetry(request, options) {
      const answer = await client.ingestTelemetry(request, options).catch((error: unknown) => {
        sent.failures += 1;
        throw error;
      });
      if (!isOver()) sent.calls += 1;
      if (!request.fromCursor) sent.opened += 1;
      if (!answer.accepted) return answer;
      if (!isOver()) sent.rows += (request.logs?.length ?? 0) + (request.metrics?.length ?? 0);
      sent.samples += request.metrics?.length ?? 0;
      for (const { timestamp } of request.logs ?? []) {
        sent.lines += 1;
        sent.lateMs.push(Date.now() - Number(timestamp?.seconds) * 1000 - Number(timestamp?.nanos) / 1e6);
      }
      return answer;
    },
  };
}

const collectors: NodeCollector[] = [];
for (let node = 0; node < nodes; node++) {
  const client = createClient(TelemetryService, createRemoteTransport({ url, signer, audience: "telemetry" }));
  async function* watchDrains(signal: AbortSignal): AsyncGenerator<string> {
    for await (const { sandboxId } of client.watchDrains({}, asService({ signal, timeoutMs: 0 }))) yield sandboxId;
  }
  const parts = { containers: simulatePods(node), client: counting(client), watchDrains, logger };
  collectors.push(startNodeCollector({ ...parts, metrics: createMetrics() }));
  // Some nodes at once, as a DaemonSet is rolled out. Each pod opens two sources.
  while (sent.opened < 2 * podsOfNode * (node + 1 - nodesAtOnce)) await delay(20);
}
while (sent.opened < 2 * podsOfNode * nodes) await delay(20);

process.once("message", async () => {
  beginMs = Date.now();
  begun.resolve(beginMs);
  await delay(seconds * 1000);
  const lines = nodes * podsOfNode * Math.floor((seconds * 1000) / lineMs);
  const deadlineMs = performance.now() + drainMs;
  while ((sent.lines < lines || sent.samples < sent.taken) && performance.now() < deadlineMs) await delay(100);
  const { calls, rows, failures, taken, lateMs } = sent;
  process.send?.({ calls, rows, failures, lines, samples: taken, lateMs } satisfies Sent);
  await Promise.all(collectors.map((collector) => collector.stop()));
});
// The bench that started it has ended.
process.once("disconnect", () => process.exit());
process.send?.("ready");
