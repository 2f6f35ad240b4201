// Separate from outbox.ts, so that a database's writer thread doesn't load Protobuf.

/** An event that is stored with the change that causes it and published after the commit. */
export interface StagedEvent {
  id: string;
  subject: string;
  /** A sandgate.common.v1.Event. */
  bytes: Uint8Array;
}

/** An event that waits for the bus. */
export interface WaitingEvent extends StagedEvent {
  /** How often the bus has refused it. */
  refusals: number;
}

/** Of events that wait, no more are counted. */
export const maxCountedEvents = 10_000;

interface OutboxBacklog {
  /** No more than `maxCountedEvents`, as with `refused`. */
  unsent: number;
  /** Those of them that the bus has refused. */
  refused: number;
  oldestStagedAt: Date | undefined;
}

/**
 * The events of a service that wait for the bus, in the service's own database. Sent events are deleted after
 * `sentKeptMs`.
 */
export interface OutboxStore {
  /** The database's name, for metrics. */
  readonly name: string;
  /**
   * Returns unsent events, the oldest first, and after them those that the bus has refused and that are due again. So
   * refused events hold up no other, however many there are.
   */
  unsent(limit: number): Promise<WaitingEvent[]>;
  /** Records that the bus has refused these events once more, and when each is due again. */
  postpone(refused: readonly { id: string; until: Date }[]): Promise<void>;
  /** Records that the bus with this identity has these events. */
  markSent(ids: readonly string[], bus: string): Promise<void>;
  /** Marks up to `limit` kept events that another bus received as unsent again, and returns how many. */
  resend(bus: string, limit: number): Promise<number>;
  backlog(): Promise<OutboxBacklog>;
  /** Takes or renews the right to publish. Returns false while another replica has it. */
  lead(holder: string, ttlMs: number): Promise<boolean>;
  resign(holder: string): Promise<void>;
  /** Calls the listener after each commit of this process that staged events, until the returned function is called. */
  onStaged(listener: () => void): () => void;
}

/** The delays between attempts to publish an event that the bus refuses. */
export const refusedRetry = { firstMs: 200, lastMs: 60_000 };

/** How long a sent event is kept, so that it can be published again on a recreated bus. */
export const sentKeptMs = 7 * 24 * 60 * 60 * 1000;
