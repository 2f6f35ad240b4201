import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "@sandgate/kit/base/logging";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { Container, Engine, LogBlock } from "../collect/container-source.ts";
import type { LogRow, MetricRow } from "../store/rows.ts";
import type { DockerClient } from "./client.ts";
import { createFrameParser, createTimeParser } from "./log-frames.ts";
import { createLogPosition, type LogPosition } from "./log-position.ts";

const sandboxLabel = "sandgate.io/sandbox-id";
const workspaceLabel = "sandgate.io/workspace-id";
const installationLabel = "sandgate.io/installation";

/**
 * Between two looks at a log that is written to: well within the time that a batch waits for more lines, and longer than a look
 * takes, whatever tenants write.
 */
const rereadPause = { leastMs: 200, perLook: 4 };
/** Between two looks at a log of which the engine tells nothing. */
const quietMs = 10_000;
/**
 * What a look at a log's end asks for: from `least` to `first` by what came last time, then 16 times as many up to `most`, then
 * all. The engine finds 100,000 to 200,000 frames in a second.
 */
const tailFrames = { least: 16, first: 16_384, most: 262_144 };

/** Reads a Docker-compatible engine over its API. Containers must have no terminal. */
export function openDockerEngine(o: { client: DockerClient; installationId: string; logger: Logger }): Engine {
  const { client } = o;
  const parseTime = createTimeParser();
  const ours = `${installationLabel}=${o.installationId}`;

  async function openLog(containerId: string, which: Record<string, string>, signal: AbortSignal) {
    const query = { stdout: "1", stderr: "1", ...which };
    return (await client.getStream(`/containers/${containerId}/logs`, query, signal)) ?? noBytes();
  }

  /** Takes what the engine gives of the log. Answers how many frames were behind the position. */
  async function* readInto(position: LogPosition, log: AsyncIterable<Buffer>): AsyncGenerator<LogBlock, number> {
    const parse = createFrameParser();
    let taken = 0;
    for await (const bytes of log) {
      const rows: LogRow[] = [];
      for (const frame of parse(bytes)) {
        if (!position.seeking) taken += 1;
        const row = position.take(frame);
        if (row) rows.push(row);
      }
      if (rows.length > 0) yield { rows, cursor: position.cursor() };
    }
    return taken;
  }

  /** One complete reading of the log from the position, or two when its place is gone. */
  async function* readComplete(
    container: Container,
    position: LogPosition,
    signal: AbortSignal,
  ): AsyncGenerator<LogBlock, number> {
    for (;;) {
      const sinceNs = position.begin();
      const since = sinceNs !== undefined && { since: formatSeconds(sinceNs) };
      const log = await openLog(container.id, { timestamps: "1", ...since }, signal);
      const taken = yield* readInto(position, log);
      if (position.end()) return taken;
      o.logger.warn(
        { sandboxId: container.sandboxId, containerId: container.id, cursor: position.cursor() },
        "the engine's log lacks the place it was read to; lines may be lost",
      );
    }
  }

  /** Reads on among the log's last frames, which is cheap, or all of it when the position's place is not there. */
  async function* readOn(
    container: Container,
    position: LogPosition,
    expected: number,
    signal: AbortSignal,
  ): AsyncGenerator<LogBlock, number> {
    if (position.started) {
      const { least, first, most } = tailFrames;
      for (let frames = Math.min(first, Math.max(least, 2 * expected)); frames <= most; frames *= 16) {
        position.beginTail();
        const log = await openLog(container.id, { timestamps: "1", tail: String(frames) }, signal);
        const taken = yield* readInto(position, log);
        if (!position.seeking) return taken;
      }
    }
    return yield* readComplete(container, position, signal);
  }

  /**
   * Follows the log from the position. What the engine gives a follower is not read: around a rotation of the log it can miss a
   * whole file or repeat one. It only tells when there is more, which is then read from the files as they are at one moment.
   */
  async function* readFollowing(
    container: Container,
    position: LogPosition,
    signal: AbortSignal,
  ): AsyncGenerator<LogBlock> {
    const over = new AbortController();
    const until = AbortSignal.any([signal, over.signal]);
    const wakeup = createWakeup();
    let rung = false;
    let ended = false;
    const listen = async () => {
      // With its last frame, so that nothing falls between the first reading and the following.
      for await (const _ of await openLog(container.id, { follow: "1", tail: "1" }, until)) {
        rung = true;
        wakeup.wake();
      }
    };
    const listening = listen().finally(() => {
      ended = true;
      wakeup.wake();
    });
    // Thrown below, unless the reading fails first.
    listening.catch(() => undefined);
    try {
      let taken = 0;
      // The first look needs no telling.
      let wasRung = true;
      for (;;) {
        const begunMs = performance.now();
        taken = yield* readOn(container, position, taken, signal);
        if (ended) return await listening;
        const lookMs = performance.now() - begunMs;
        await delay(Math.max(rereadPause.leastMs, rereadPause.perLook * lookMs), undefined, { signal });
        // The engine did not tell of what was found, and has not since: it follows a file that was rotated away.
        if (taken > 0 && !wasRung && !rung) return;
        await wakeup.wait(quietMs, until);
        wasRung = rung;
        rung = false;
      }
    } finally {
      over.abort();
    }
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
      if (follow) return yield* readFollowing(container, position, signal);
      yield* readOn(container, position, 0, signal);
      const rows = position.finish();
      if (rows.length > 0) yield { rows, cursor: position.cursor() };
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
