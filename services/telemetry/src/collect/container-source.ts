import type { LogRow, MetricRow } from "../store/rows.ts";

/** A container of this installation, found by its labels. */
export interface Container {
  id: string;
  sandboxId: string;
  workspaceId: string;
  /** A created one has not run yet, and has no logs. */
  state: "created" | "running" | "ended";
}

export interface ContainerEvent {
  containerId: string;
  action: "start" | "kill" | "die" | "destroy";
}

/** Lines in the source's order, and the position after them. */
export interface LogBlock {
  /** At least one, and far fewer than a batch holds. */
  rows: LogRow[];
  cursor: string;
}

/** What the collector needs of a container engine. */
export interface Engine {
  /** All containers of the installation, or those of one sandbox; complete or throws. */
  list(o: { sandboxId?: string | undefined; signal: AbortSignal }): Promise<Container[]>;
  /** Undefined: there is no such container (any more). */
  inspect(containerId: string): Promise<Container | undefined>;
  /** What happens to containers of the installation. Ends when the connection does. */
  observe(signal: AbortSignal): AsyncIterable<ContainerEvent>;
  /**
   * Lines behind `cursor` ("" or "0": all). Following ends with the container or the connection, and may miss its last lines;
   * without it, the log of a container that has ended is read to its end, a last line without line end included.
   * Not reading on holds the engine back. A container that is gone has no lines.
   */
  readLogs(container: Container, cursor: string, o: { follow: boolean; signal: AbortSignal }): AsyncIterable<LogBlock>;
  /** The counters of a running container; undefined when it doesn't run (any more). */
  sample(containerId: string, signal: AbortSignal): Promise<MetricRow | undefined>;
}
