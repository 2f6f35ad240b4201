import type { LogRow, MetricRow } from "../domain/rows.ts";

/** A sandbox's container of this installation. */
export interface Container {
  id: string;
  sandboxId: string;
  /** A created one has not run yet, and has no logs. */
  state: "created" | "running" | "ended";
}

export interface ContainerEvent {
  containerId: string;
  action: "start" | "kill" | "die" | "destroy";
}

/** Lines in the order they were written, and the cursor after them. */
export interface LogBlock {
  /** At least one, and far fewer than a batch holds. */
  rows: LogRow[];
  cursor: string;
}

/** Where the collector finds containers and reads their logs and counters; an adapter for each kind of engine. */
export interface ContainerSource {
  /** All containers of the installation, or the one of a sandbox; complete, or it throws. */
  list(o: { sandboxId?: string | undefined; signal: AbortSignal }): Promise<Container[]>;
  /** Undefined when there is no such container. */
  inspect(containerId: string, signal: AbortSignal): Promise<Container | undefined>;
  /** The events of the installation's containers from now on. The stream ends with the connection. */
  watch(signal: AbortSignal): AsyncIterable<ContainerEvent>;
  /**
   * Lines after `cursor` ("" or "0": all). With `follow` the stream ends with the container or the connection, and may
   * miss the last lines. Without, the log of a container that has ended is read to its end, a last line without line
   * end included. A slow reader holds the engine back. A container that is gone has no lines.
   */
  readLogs(container: Container, cursor: string, o: { follow: boolean; signal: AbortSignal }): AsyncIterable<LogBlock>;
  /** Opens a sampler of a container, which is to have one only. Cheap: it opens nothing that must be closed. */
  openSampler(containerId: string): Sampler;
  /** What keeps logs or samples of all containers from being read, if that is known. */
  problem?(): string | undefined;
}

/** The containers of one node, of which the engine doesn't say when they end. */
export interface NodeSource extends ContainerSource {
  /**
   * Notes that the sandbox's container has ended, so that its log can be read to the end. False when it has none here.
   */
  markEnded(sandboxId: string): Promise<boolean>;
}

/** Reads the counters of a container; undefined when it isn't running. */
export type Sampler = (signal: AbortSignal) => Promise<MetricRow | undefined>;
