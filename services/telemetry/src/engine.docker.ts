import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "@sandgate/kit/logging";
import type { DockerClient } from "./docker-client.ts";
import { createFrameParser, createTimeParser } from "./docker-log-frames.ts";
import { createLogPosition, type LogPosition } from "./docker-log-position.ts";
import type { Container, Engine, LogBlock } from "./engine.ts";
import { fromMillis, type LogRow, type MetricRow } from "./rows.ts";

const sandboxLabel = "sandgate.io/sandbox-id";
const workspaceLabel = "sandgate.io/workspace-id";
const installationLabel = "sandgate.io/installation";

/**
 * A follower that lags while the log rotates under it can miss a whole file, so one that has brought so much and is so late is
 * left for a complete reading, which the engine takes from all files as they are at one moment.
 */
const lagging = { bytes: 4 * 1024 * 1024, ns: fromMillis(500) };
/** Between two complete readings, which cost the engine a scan of its files. */
const rereadPauseMs = 100;

/** Reads a Docker-compatible engine over its API. Containers must have no terminal. */
export function openDockerEngine(o: { client: DockerClient; installationId: string; logger: Logger }): Engine {
  const { client } = o;
  const parseTime = createTimeParser();
  const ours = `${installationLabel}=${o.installationId}`;

  async function openLog(
    containerId: string,
    sinceNs: bigint | undefined,
    follow: boolean,
    signal: AbortSignal,
  ): Promise<AsyncIterable<Buffer>> {
    const query = {
      stdout: "1",
      stderr: "1",
      timestamps: "1",
      ...(follow && { follow: "1" }),
      ...(sinceNs !== undefined && { since: formatSeconds(sinceNs) }),
    };
    return (await client.getStream(`/containers/${containerId}/logs`, query, signal)) ?? noBytes();
  }

  /** One complete reading of the log from the position, or two when its place is gone. */
  async function* readComplete(container: Container, position: LogPosition, signal: AbortSignal) {
    for (let complete = false; !complete; ) {
      const parse = createFrameParser();
      for await (const bytes of await openLog(container.id, position.begin("complete"), false, signal)) {
        const rows: LogRow[] = [];
        for (const frame of parse(bytes)) {
          const row = position.take(frame);
          if (row && row !== "unsure") rows.push(row);
        }
        if (rows.length > 0) yield { rows, cursor: position.cursor() };
      }
      complete = position.end();
      if (!complete) {
        o.logger.warn(
          { sandboxId: container.sandboxId, containerId: container.id, cursor: position.cursor() },
          "the engine's log lacks the place it was read to; lines may be lost",
        );
      }
    }
  }

  /** Follows the log from the position. Answers false when a complete reading has to come before more is followed. */
  async function* readFollowing(
    container: Container,
    position: LogPosition,
    signal: AbortSignal,
  ): AsyncGenerator<LogBlock, boolean> {
    const parse = createFrameParser();
    let received = 0;
    for await (const bytes of await openLog(container.id, position.begin("following"), true, signal)) {
      const rows: LogRow[] = [];
      let trusted = true;
      let newestNs = 0n;
      for (const frame of parse(bytes)) {
        const row = position.take(frame);
        trusted = row !== "unsure";
        if (!trusted) break;
        if (row && row !== "unsure") rows.push(row);
        newestNs = frame.timeNs;
      }
      // What is read again is old and says nothing.
      if (trusted && position.seeking) continue;
      if (rows.length > 0) yield { rows, cursor: position.cursor() };
      received += bytes.length;
      const late = newestNs > 0n && fromMillis(Date.now()) - newestNs > lagging.ns;
      if (!trusted || (late && received > lagging.bytes)) return false;
    }
    return true;
  }

  return {
    async list({ sandboxId, signal }) {
      const label = sandboxId === undefined ? [ours] : [ours, `${sandboxLabel}=${sandboxId}`];
      const query = { all: "1", filters: JSON.stringify({ label }) };
      const found = await client.getJson("/containers/json", query, signal);
      if (!Array.isArray(found)) throw new Error("The engine's list of containers is none.");
      return (found as ListedContainer[]).flatMap((item) => toContainer(item.Id, item.Labels, item.State));
    },
    async inspect(containerId) {
      const found = await client.getJson(`/containers/${containerId}/json`);
      if (found === undefined) return undefined;
      const { Id, Config, State } = found as InspectedContainer;
      return toContainer(Id, Config.Labels, State.Status)[0];
    },
    async *observe(signal) {
      const event = ["start", "kill", "die", "destroy"] as const;
      const filters = JSON.stringify({ type: ["container"], label: [ours], event });
      const stream = await client.getStream("/events", { filters }, signal);
      if (!stream) return;
      let rest = "";
      for await (const bytes of stream.setEncoding("utf8")) {
        const lines = (rest + String(bytes)).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) {
          const { Action, Actor } = JSON.parse(line) as ContainerEvent;
          const action = event.find((known) => known === Action);
          if (action) yield { containerId: Actor.ID, action };
        }
      }
    },
    async *readLogs(container, cursor, { follow, signal }) {
      const position = createLogPosition(cursor);
      if (!follow) {
        yield* readComplete(container, position, signal);
        const rows = position.finish();
        if (rows.length > 0) yield { rows, cursor: position.cursor() };
        return;
      }
      if (position.started) yield* readComplete(container, position, signal);
      while (!(yield* readFollowing(container, position, signal))) {
        await delay(rereadPauseMs, undefined, { signal });
        yield* readComplete(container, position, signal);
      }
    },
    async sample(containerId, signal) {
      const query = { stream: "false", "one-shot": "true" };
      const stats = await client.getJson(`/containers/${containerId}/stats`, query, signal);
      return stats === undefined ? undefined : toSample(stats as ContainerStats, parseTime);
    },
  };
}

// The parts of the engine's answers that are read (Docker Engine API 1.41).

interface ListedContainer {
  Id: string;
  Labels: Record<string, string>;
  State: string;
}
interface InspectedContainer {
  Id: string;
  Config: { Labels: Record<string, string> };
  State: { Status: string };
}
interface ContainerEvent {
  Action: string;
  Actor: { ID: string };
}
interface ContainerStats {
  read: string;
  cpu_stats: { cpu_usage: { total_usage: number } };
  memory_stats: { usage?: number; stats?: { inactive_file?: number; total_inactive_file?: number } };
}

function toContainer(id: string, labels: Record<string, string>, status: string): Container[] {
  const sandboxId = labels[sandboxLabel];
  const workspaceId = labels[workspaceLabel];
  if (!sandboxId || !workspaceId) return [];
  return [{ id, sandboxId, workspaceId, state: toState(status) }];
}

function toState(status: string): Container["state"] {
  if (status === "created") return "created";
  return status === "exited" || status === "dead" || status === "removing" ? "ended" : "running";
}

/** The working set is what is in use without the file pages that the kernel would drop first, as the kubelet reckons it. */
function toSample(stats: ContainerStats, parseTime: (text: string) => bigint): MetricRow | undefined {
  const { usage, stats: pages } = stats.memory_stats;
  // A container that has ended is answered with a time of the year 1 and without figures.
  if (usage === undefined || stats.read.startsWith("0001")) return undefined;
  // On cgroup v1 the first of them includes child groups; on v2 there is the second alone.
  const inactive = pages?.total_inactive_file ?? pages?.inactive_file ?? 0;
  return {
    timeNs: parseTime(stats.read),
    cpuSeconds: stats.cpu_stats.cpu_usage.total_usage / 1e9,
    memoryBytes: Math.max(0, usage - inactive),
  };
}

function formatSeconds(ns: bigint): string {
  return `${ns / 1_000_000_000n}.${String(ns % 1_000_000_000n).padStart(9, "0")}`;
}

async function* noBytes(): AsyncGenerator<Buffer> {}
