import { randomUUID } from "node:crypto";
import type { JetStreamManager } from "@nats-io/jetstream";
import type { Logger } from "../base/logging.ts";
import { monotonicMs } from "../base/time.ts";
import type { NatsLink } from "./bus.nats-connection.ts";
import { eventKeptMs, eventStream, type Streams } from "./bus.nats-streams.ts";

interface StoredEvent {
  id: string;
  subject: string;
  seq: number;
}

/**
 * Detects that the stream of events was recreated or rolled back, by its identity and by an event that it must still
 * have.
 */
export interface RollbackDetector {
  /** Remembers the last event that the stream has confirmed. */
  recordStored(event: StoredEvent): void;
  /** Throws after a lost connection until it is certain whether the stream was rolled back. */
  check(): Promise<void>;
  /** Returns a text that changes when the stream is recreated or rolled back. */
  identity(): Promise<string>;
}

/** For a moment after it takes over, a follower in a cluster may lack the last writes. */
const gracePeriodMs = 3_000;

/**
 * Creates a rollback detector. After a server crashed without `sync_interval: always`, or its storage was restored from
 * a copy, the stream is the same, but its end is cut off. Then the last event that was stored before the connection was
 * lost is missing, and the identity changes as for a new stream, so that relays publish again. Each process detects
 * this for its own outbox.
 */
export function createRollbackDetector(options: {
  link: NatsLink;
  jsm: JetStreamManager;
  streams: Streams;
  logger: Logger;
}): RollbackDetector {
  const { link, jsm, streams, logger } = options;
  let created: string | undefined;
  let rollback = "";
  let last: (StoredEvent & { at: number }) | undefined;
  let unconfirmed: typeof last;
  let missingSince: number | undefined;
  link.onChange((isUp) => {
    if (!isUp) unconfirmed ??= last;
  });

  const confirm = () => {
    unconfirmed = undefined;
    missingSince = undefined;
  };
  const checkLast = async ({ id, subject, seq, at }: NonNullable<typeof last>): Promise<void> => {
    if (monotonicMs() - at > eventKeptMs / 2) return confirm();
    const found = await jsm.direct.getMessage(eventStream, { last_by_subj: subject });
    if (found && (found.seq === seq ? found.header.get("Nats-Msg-Id") === id : found.seq > seq)) return confirm();
    missingSince ??= monotonicMs();
    if (monotonicMs() - missingSince < gracePeriodMs) throw new Error("the stream of events may have been rolled back");
    logger.warn({ event: id, seq }, "the stream of events was rolled back");
    rollback = ` ${randomUUID()}`;
    confirm();
  };
  const identify = async (): Promise<string> => {
    const info = await streams.describe();
    if (info.created !== created) {
      created = info.created;
      rollback = "";
      confirm();
    }
    if (unconfirmed) await checkLast(unconfirmed);
    return created + rollback;
  };
  return {
    recordStored(event) {
      last = { ...event, at: monotonicMs() };
    },
    async check() {
      if (unconfirmed) await identify();
    },
    identity: identify,
  };
}
