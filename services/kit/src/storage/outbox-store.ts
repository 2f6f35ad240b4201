// Apart from outbox.ts so that a database's writer thread loads no Protobuf.

/** An event on its way: stored with the change that causes it, published after the commit. */
export interface StagedEvent {
  id: string;
  subject: string;
  /** A sandgate.common.v1.Event. */
  bytes: Uint8Array;
}

interface OutboxBacklog {
  unsent: number;
  oldestStagedAt: Date | undefined;
}

/** Where the events of a service wait for the bus, in its own database. It forgets those sent `sentKeptMs` ago by itself. */
export interface OutboxStore {
  /** The database's name, for metrics. */
  readonly name: string;
  /** Unsent events, the oldest first. */
  unsent(limit: number): Promise<StagedEvent[]>;
  /** Notes that the bus of this identity has them. */
  markSent(ids: readonly string[], bus: string): Promise<void>;
  /** Makes up to `limit` kept events that another bus got unsent again, and answers how many. */
  resend(bus: string, limit: number): Promise<number>;
  backlog(): Promise<OutboxBacklog>;
  /** Takes or renews the right to publish; false while another replica has it. */
  lead(holder: string, ttlMs: number): Promise<boolean>;
  resign(holder: string): Promise<void>;
  /** Calls the listener after each commit of this process that staged events; the answer ends that. */
  onStaged(listener: () => void): () => void;
}

/** How long a sent event is kept, to be published again on a bus that was made anew. */
export const sentKeptMs = 7 * 24 * 60 * 60 * 1000;
