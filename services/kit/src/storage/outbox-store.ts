// Apart from outbox.ts so that a database's writer thread loads no Protobuf.

/** An event that is stored with the change that causes it, and published after the commit. */
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

interface OutboxBacklog {
  unsent: number;
  /** Of these, events that the bus has refused. */
  refused: number;
  oldestStagedAt: Date | undefined;
}

/** Where the events of a service wait for the bus, in its own database. Events sent more than `sentKeptMs` ago are deleted. */
export interface OutboxStore {
  /** The database's name, for metrics. */
  readonly name: string;
  /**
   * Unsent events, the oldest first; behind all of these, those that the bus has refused and that are due again. So no number
   * of refused events holds up another.
   */
  unsent(limit: number): Promise<WaitingEvent[]>;
  /** Records that the bus has refused them once more; each is due again at its time. */
  postpone(refused: readonly { id: string; until: Date }[]): Promise<void>;
  /** Records that the bus of this identity has them. */
  markSent(ids: readonly string[], bus: string): Promise<void>;
  /** Marks up to `limit` kept events that another bus received as unsent again; returns how many. */
  resend(bus: string, limit: number): Promise<number>;
  backlog(): Promise<OutboxBacklog>;
  /** Takes or renews the right to publish; false while another replica has it. */
  lead(holder: string, ttlMs: number): Promise<boolean>;
  resign(holder: string): Promise<void>;
  /** Calls the listener after each commit of this process that staged events; the answer ends that. */
  onStaged(listener: () => void): () => void;
}

/** How long a sent event is kept, to be published again on a bus that was recreated. */
export const sentKeptMs = 7 * 24 * 60 * 60 * 1000;
